"""A machine that is hot, or on battery, is spared in all queues alike, and loads less."""

from __future__ import annotations

from collections.abc import Mapping

from appliance.daemon.pool.mover import Mover
from appliance.daemon.pool.seat import Seat
from appliance.daemon.pool.wants import Barred
from appliance.gateway.admission import Easing


class Sparing:
    """Over the seats of a pool, those that come included."""

    def __init__(self, seats: Mapping[str, Seat], mover: Mover) -> None:
        self._seats, self._mover = seats, mover
        self._easing: Easing | None = None

    @property
    def easing(self) -> Easing | None:
        """How the machine is spared now."""
        return self._easing

    def apply(self, easing: Easing | None, *, ahead: str = "") -> None:
        """Spare the machine so from now on. While nothing starts, no request loads a model; `ahead`: why none
        is loaded before a request wants it.
        """
        self._easing = easing
        stops = easing is not None and easing.stops
        self._mover.barred = Barred(requests=stops, ahead=ahead)
        for seat in self._seats.values():
            seat.queue.ease(easing)
        self._mover.wake()

    def decide_again(self) -> None:
        """What sends requests elsewhere has changed: those that wait are decided again."""
        for seat in self._seats.values():
            seat.queue.look_again()
