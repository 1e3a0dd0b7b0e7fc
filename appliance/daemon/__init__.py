"""The daemon: builds the rooms, wires them, runs them."""

from appliance.daemon.download import Download
from appliance.daemon.run import Interrupted, Options, Reporter, serve

__all__ = ["Download", "Interrupted", "Options", "Reporter", "serve"]
