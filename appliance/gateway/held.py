"""A request inside the engine: the engine's supervisor hears that it moves, and how it ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from appliance.gateway.failures import UpstreamFailed
from appliance.gateway.ports import Local, Served

_BROKEN = ("5xx", "timeout", "refused")
"""Ends that may mean that the engine is up and does not work: `refused` where its socket's file is gone. Of a
process that died the supervisor hears by itself, also by way of `reset`."""


@contextmanager
def held(local: Local, served: Served) -> Iterator[Callable[[], None]]:
    """Counts one request inside the engine; what it yields is called for each piece of the reply.

    Raises EngineUnavailable when the engine has just stopped being ready.
    """
    with local.busy(served) as lease:
        if lease is None:
            yield unheard
            return
        try:
            yield lease.beat
        except UpstreamFailed as failure:
            if failure.outcome in _BROKEN:
                lease.suspect()
            raise
        lease.worked()


def unheard() -> None:
    """For a side that has no supervisor here."""
