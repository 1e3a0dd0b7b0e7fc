"""What all commands share: the rooms, and the reading of a request's body."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from appliance.daemon.rooms import Rooms
from appliance.errors import UsageError

Document = Mapping[str, Any]


class Area:
    """The rooms, the status document, and the way to stop."""

    def __init__(self, rooms: Rooms, status: Callable[[], Any], stop: Callable[[], None]) -> None:
        self._rooms = rooms
        self._status = status
        self._stop = stop


def whole(body: Document, name: str, *, least: int = 0) -> int | None:
    """A whole number of at least `least`, or None when it is not given. Raises UsageError."""
    value = body.get(name)
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= least):
        return value
    raise UsageError(f"{name} is not a whole number{f' of at least {least}' if least else ''}.")


def flag(body: Document, name: str) -> bool:
    """True or false; false when it is not given. Raises UsageError."""
    value = body.get(name)
    if value is None or isinstance(value, bool):
        return bool(value)
    raise UsageError(f"{name} is neither true nor false.")
