"""What would have happened: governor and router over a recorded or written trace."""

from appliance.operations.replay.reading import read
from appliance.operations.replay.run import replay
from appliance.operations.replay.under import Under
from appliance.operations.replay.values import Report, Trace

__all__ = ["Report", "Trace", "Under", "read", "replay"]
