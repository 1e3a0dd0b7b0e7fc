"""Which models are resident: pure rules, see README.md."""

from appliance.engines.pool.beside import good_beside
from appliance.engines.pool.turns import (
    COOL_S,
    Standing,
    Turn,
    cool_s,
    may_leave_at,
    next_wanted,
    over_at,
    unload_at,
    victims,
)

__all__ = [
    "COOL_S",
    "Standing",
    "Turn",
    "cool_s",
    "good_beside",
    "may_leave_at",
    "next_wanted",
    "over_at",
    "unload_at",
    "victims",
]
