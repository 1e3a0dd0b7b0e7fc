"""Where `appliance.processes` was; kept for its name."""

from __future__ import annotations

from appliance.processes import is_same

__all__ = ["is_same"]
