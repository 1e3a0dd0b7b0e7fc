"""The last requests' receipts, in memory: bounded, and readable by the caller who made the request only."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from appliance.gateway.access import Caller
from appliance.gateway.course import Course


class Receipts:
    """A receipt is the live course of its request, so it can't disagree with what went over the wire."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: OrderedDict[str, Course] = OrderedDict()

    def keep(self, course: Course) -> None:
        """From the arrival on; the oldest goes when there are too many."""
        self._kept[course.request_id] = course
        while len(self._kept) > self._limit:
            self._kept.popitem(last=False)

    def running(self) -> tuple[Course, ...]:
        """The requests that have not ended, newest first."""
        return tuple(course for course in reversed(self._kept.values()) if course.ended_at is None)

    def read(self, request_id: str, caller: Caller) -> dict[str, Any] | None:
        """The receipt, or None when there is none that this caller may read."""
        course = self._kept.get(request_id)
        if course is None or course.caller.identity != caller.identity:
            return None
        return course.receipt()
