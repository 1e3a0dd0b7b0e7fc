"""Ending a wait of one thread from another one."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from appliance.web.types import Broken

STOPPED = "the transfer was stopped"


class Stop:
    """A flag, and what has to be done so that whoever waits notices it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._on = False
        self._ends: dict[object, Callable[[], None]] = {}

    @property
    def is_set(self) -> bool:
        return self._on

    def set(self) -> None:
        """End every wait, now and from now on."""
        with self._lock:  # held while the ends run: what they touch is not closed before it is dropped
            self._on = True
            for end in self._ends.values():
                end()

    def add(self, key: object, end: Callable[[], None]) -> None:
        """Let `set` call `end`, which must not block. Raises Broken when the flag is up."""
        with self._lock:
            if self._on:
                raise Broken(STOPPED)
            self._ends[key] = end

    def drop(self, key: object) -> None:
        """Forget `key`; after this its end is not running and will not run."""
        with self._lock:
            self._ends.pop(key, None)

    @contextlib.contextmanager
    def guard(self, end: Callable[[], None]) -> Iterator[None]:
        """`add` for the time of a block."""
        key = object()
        self.add(key, end)
        try:
            yield
        finally:
            self.drop(key)
