"""The resident models: see README.md."""

from appliance.daemon.pool.pool import Pool
from appliance.daemon.pool.seat import Seat

__all__ = ["Pool", "Seat"]
