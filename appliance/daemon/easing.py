"""From what the monitor sees and the settings say to how it is spared: at each change, no polling."""

from __future__ import annotations

from collections.abc import Callable

from appliance.daemon.pool import Pool
from appliance.gateway.admission import Easing
from appliance.monitor import MonitorSnapshot
from appliance.routing import ON_BATTERY, saves
from appliance.settings import Governor

CRITICAL = "the machine is critically hot"


def easing_of(seen: MonitorSnapshot, governor: Governor) -> Easing | None:
    """How the queues spare the machine; None: not at all. Pure."""
    stops, saver = seen.thermal == "critical", saves(seen.power, governor.battery)
    why = seen.eases or (CRITICAL if stops else ON_BATTERY if saver else None)
    if why is None:
        return None
    return Easing(why, governor.dwell, at_once=1 if saver else None, stops=stops)


def no_loads_ahead(seen: MonitorSnapshot, governor: Governor) -> str:
    """Why nothing is loaded before a request wants it; empty: it is. Pure."""
    if seen.thermal == "critical":
        return CRITICAL
    return f"{ON_BATTERY} (governor.battery is {governor.battery})" if _spares(seen, governor) else ""


def _spares(seen: MonitorSnapshot, governor: Governor) -> bool:
    return seen.power == "battery" and governor.battery != "full"


class Easer:
    """Applies it to the pool. `apply` whenever heat, easing, the power source or the settings changed."""

    def __init__(
        self, pool: Pool, seen: Callable[[], MonitorSnapshot], governor: Callable[[], Governor]
    ) -> None:
        self._pool, self._seen, self._governor = pool, seen, governor
        self._battery: str | None = None
        """The policy in force on battery, at the last call; None on mains."""

    def apply(self) -> None:
        """As things are now. What waits is decided again where the battery sends it elsewhere."""
        seen, governor = self._seen(), self._governor()
        self._pool.sparing.apply(easing_of(seen, governor), ahead=no_loads_ahead(seen, governor))
        battery = governor.battery if _spares(seen, governor) else None
        if battery != self._battery:
            self._battery = battery
            self._pool.sparing.decide_again()
