"""A request whose prompt may not be written down is kept apart in the engine, from slots that are saved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from appliance.engines import Endpoint
from appliance.gateway.ask import Ask
from appliance.gateway.course import Course
from appliance.gateway.gate import Gate


@contextmanager
def secluded(gate: Gate, ask: Ask, course: Course, endpoint: Endpoint) -> Iterator[Mapping[str, int]]:
    """While one request is inside the engine: what its body must say in addition.

    Several choices of one prompt take as many slots, and a text that becomes a vector can't be told which.
    """
    view = gate.local.view(ask.served)
    vector = ask.kind == "embedding"
    with gate.privacy.request(
        endpoint,
        private=ask.no_store,
        slots=view.slots if view is not None else None,
        spreads=ask.n > 1 or vector,
        began=lambda: vector or course.first_at is not None,
    ) as more:
        yield more
