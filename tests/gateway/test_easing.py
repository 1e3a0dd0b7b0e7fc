"""A machine that is spared: batch work waits first and gets its turn; a critical one starts nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from appliance.errors import Rejected
from appliance.gateway.admission import Admission, Easing, Place
from appliance.routing import Lane
from tests.gateway.test_admission import Clock

PAUSE = 60.0
EASED = Easing("heat slows the machine", PAUSE)
SAVER = Easing("the machine runs on battery", PAUSE, at_once=1)
CRITICAL = Easing("the machine is critically hot", PAUSE, stops=True)


class Timers:
    """At most one is set at a time; it goes off when the clock says so."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.at: float | None = None
        self._call: Callable[[], None] = lambda: None

    def __call__(self, seconds: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        assert self.at is None, "one timer is set already"
        self.at, self._call = self._clock.now + seconds, call
        return cast("asyncio.TimerHandle", self)

    def cancel(self) -> None:
        self.at = None

    def pass_(self, seconds: float) -> None:
        """Time passes, and what is due goes off on the way."""
        until = self._clock.now + seconds
        while self.at is not None and self.at <= until:
            self._clock.now, self.at = max(self._clock.now, self.at), None
            self._call()
        self._clock.now = until


def queue_of(slots: int = 2, max_queue: int = 10) -> tuple[Admission, Clock, Timers]:
    clock = Clock()
    timers = Timers(clock)
    return Admission(slots, max_queue, clock=clock, later=timers), clock, timers


def due(timers: Timers) -> float | None:
    return timers.at


def held(place: Place) -> bool:
    return place.held


def batch_wait(queue: Admission) -> float | None:
    return queue.snapshot.batch_wait


def leave(place: Place) -> None:
    place.__exit__(None, None, None)


def test_batch_waits_while_anything_else_runs_or_waits_and_then_starts_one_by_one() -> None:
    queue, _, timers = queue_of()
    running = queue.enter("interactive")
    queue.ease(EASED)
    first, second = queue.enter("batch"), queue.enter("batch")
    assert not held(first), "a slot is free, but not for batch work"
    assert timers.at is None, "it waits for the running one, not for a time"
    leave(running)
    assert held(first)
    assert not held(second), "one at a time"
    timers.pass_(5)
    leave(first)
    assert not held(second)
    assert timers.at == pytest.approx(165), "the whole pause is left"
    timers.pass_(59.9)
    assert not held(second)
    timers.pass_(0.2)
    assert held(second)
    assert timers.at is None


def test_replies_longer_than_the_pause_do_not_follow_each_other_without_one() -> None:
    queue, clock, timers = queue_of()
    queue.ease(EASED)
    first, second = queue.enter("batch"), queue.enter("batch")
    timers.pass_(300)
    leave(first)
    assert not held(second)
    assert timers.at == pytest.approx(clock.now + PAUSE)
    timers.pass_(PAUSE)
    assert held(second)


def test_interactive_requests_notice_nothing() -> None:
    queue, _, _ = queue_of(slots=2, max_queue=2)
    queue.ease(EASED)
    batch = [queue.enter("batch") for _ in range(3)]
    assert [held(place) for place in batch] == [True, False, False]
    one = queue.enter("interactive")
    assert held(one), "before the batch work that waits"
    with pytest.raises(Rejected) as refused:
        queue.enter("batch")
    assert refused.value.retry_after_s == 60
    waiting = [queue.enter("interactive") for _ in range(2)]
    assert not any(held(place) for place in waiting)
    with pytest.raises(Rejected):
        queue.enter("interactive")
    leave(batch[0])
    assert waiting[0].held


def test_when_it_is_over_batch_work_goes_on_at_once_and_what_runs_is_never_touched() -> None:
    queue, _, timers = queue_of(slots=3)
    running = [queue.enter("batch"), queue.enter("batch")]
    queue.ease(EASED)
    assert all(held(place) for place in running)
    late = queue.enter("batch")
    assert not held(late)
    queue.ease(None)
    assert held(late)
    assert timers.at is None


def test_no_timer_outlives_the_last_one_that_waits() -> None:
    queue, _, timers = queue_of()
    queue.ease(EASED)
    leave(queue.enter("batch"))
    second = queue.enter("batch")
    assert timers.at is not None
    leave(second)
    assert timers.at is None


def test_no_timer_runs_while_an_interactive_request_does() -> None:
    queue, _, timers = queue_of()
    queue.ease(EASED)
    leave(queue.enter("batch"))
    batch = queue.enter("batch")
    assert due(timers) is not None
    interactive = queue.enter("interactive")
    assert due(timers) is None
    leave(interactive)
    assert due(timers) == pytest.approx(160)
    assert not held(batch)


def test_on_battery_one_runs_at_a_time_and_what_ran_before_goes_on() -> None:
    queue, clock, _ = queue_of(slots=4)
    with queue.enter("interactive") as place:
        clock.now += 10
        place.completed = True
    running = [queue.enter("interactive") for _ in range(3)]
    queue.ease(SAVER)
    waits = queue.enter("interactive")
    assert not held(waits)
    clock.now += 4
    assert queue.predicted_wait() == pytest.approx(6 + 10), "the last of three, then the one ahead"
    leave(running[0])
    leave(running[1])
    assert not held(waits)
    leave(running[2])
    assert held(waits)
    assert queue.snapshot.slots == 4, "the engine still has them"
    queue.ease(None)
    assert held(queue.enter("interactive"))


def test_predictions_for_eased_batch_are_right_or_unknown() -> None:
    queue, clock, timers = queue_of()
    with queue.enter("interactive") as place:
        clock.now += 4
        place.completed = True
    queue.ease(EASED)
    assert batch_wait(queue) == 0.0
    leave(queue.enter("batch"))
    timers.pass_(20)
    assert batch_wait(queue) == pytest.approx(40)
    assert queue.predicted_wait() == 0.0
    with queue.enter("interactive"):
        assert batch_wait(queue) is None, "nobody knows how long interactive work goes on"
    with queue.enter("batch"):
        assert batch_wait(queue) is None
        assert queue.predicted_wait() == 0.0
    assert queue.snapshot.easing == EASED


def test_the_pause_is_told_in_seconds_at_usual_speed_as_all_predictions_are() -> None:
    clock = Clock()
    queue = Admission(1, 5, clock=clock, learn_scale=lambda: 0.5, later=Timers(clock))
    queue.ease(EASED)
    leave(queue.enter("batch"))
    assert batch_wait(queue) == pytest.approx(30), "over the factor of 0.5: 60 real seconds"


def test_a_critical_machine_starts_nothing_of_any_lane() -> None:
    queue, _, timers = queue_of()
    running = queue.enter("interactive")
    queue.ease(CRITICAL)
    waiting = [queue.enter("interactive"), queue.enter("batch")]
    leave(running)
    assert not any(held(place) for place in waiting)
    assert (queue.predicted_wait(), queue.predicted_wait("batch"), timers.at) == (None, None, None)
    queue.ease(EASED)
    assert [held(place) for place in waiting] == [True, False]
    queue.ease(None)
    assert all(held(place) for place in waiting)


def test_an_engine_that_makes_way_starts_no_eased_batch() -> None:
    queue, _, timers = queue_of()
    queue.ease(EASED)
    queue.hold(True)
    waits = queue.enter("batch")
    assert (held(waits), timers.at, batch_wait(queue)) == (False, None, None)
    queue.hold(False)
    assert held(waits)


async def test_who_waits_looks_again_at_each_change_and_keeps_the_place() -> None:
    queue = Admission(1, 5)
    with queue.enter("interactive"), queue.enter("interactive") as second:
        waits = asyncio.create_task(second.wait(None))
        await asyncio.sleep(0)
        queue.ease(CRITICAL)
        assert await waits is False
        assert queue.snapshot.waiting == 1
        assert await second.wait(0.0) is False
        queue.look_again()
        assert await second.wait(None) is False


async def test_a_pause_ends_by_itself() -> None:
    queue = Admission(1, 5)
    queue.ease(Easing("it is hot", 0.02))
    leave(queue.enter("batch"))
    with queue.enter("batch") as second:
        assert not held(second)
        assert await second.wait(5.0)


class Spared(RuleBasedStateMachine):
    """Random arrivals, departures, time and easing: each start is one that was allowed."""

    @initialize(slots=st.integers(1, 3))
    def begin(self, slots: int) -> None:
        self.queue, self.clock, self.timers = queue_of(slots, 6)
        self.slots = slots
        self.easing: Easing | None = None
        self.places: list[Place] = []
        self.batch_starts: list[float] = []
        self.known: set[Place] = set()

    def _of(self, lane: Lane, *, held: bool) -> list[Place]:
        return [place for place in self.places if place.lane == lane and place.held is held]

    def _running(self) -> list[Place]:
        return [place for place in self.places if place.held]

    def _width(self) -> int:
        return min(self.slots, (self.easing.at_once if self.easing else None) or self.slots)

    def _see(self) -> None:
        """What has started since the last look was allowed to."""
        fresh = [place for place in self._running() if place not in self.known]
        eased = self.easing
        assert not (fresh and eased and eased.stops)
        for place in fresh:
            if place.lane == "batch":
                assert place.granted_at is not None
                if eased:
                    assert self._running() == [place]
                    assert not self._of("interactive", held=False)
                    assert all(place.granted_at - at >= PAUSE - 1e-6 for at in self.batch_starts)
                self.batch_starts.append(place.granted_at)
        if fresh:
            assert len(self._running()) <= self._width()
        self.known.update(fresh)

    @rule(lane=st.sampled_from(["interactive", "batch"]))
    def enter(self, lane: Lane) -> None:
        waits = {name: len(self._of(name, held=False)) for name in ("interactive", "batch")}
        count = waits[lane] if self.easing and lane == "interactive" else sum(waits.values())
        try:
            self.places.append(self.queue.enter(lane))
        except Rejected:
            assert count >= 6
        self._see()

    @precondition(lambda self: self.places)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        place = self.places.pop(data.draw(st.integers(0, len(self.places) - 1)))
        leave(place)
        self._see()

    @rule(easing=st.sampled_from([None, EASED, SAVER, CRITICAL]))
    def ease(self, easing: Easing | None) -> None:
        before = self._running()
        self.easing = easing
        self.queue.ease(easing)
        assert all(place.held for place in before)
        self._see()

    @rule(seconds=st.floats(0.1, 90))
    def time(self, seconds: float) -> None:
        self.timers.pass_(seconds)
        self._see()

    @invariant()
    def nobody_waits_who_could_start(self) -> None:
        if not hasattr(self, "queue"):
            return
        free = len(self._running()) < self._width() and not (self.easing and self.easing.stops)
        assert not (free and self._of("interactive", held=False))
        batch = self._of("batch", held=False)
        if self.easing is None:
            assert not (free and batch)
        turn = self.easing and not self.easing.stops and not self._running()
        assert (self.timers.at is not None) == bool(turn and batch), "a timer only while batch waits for it"
        if self.timers.at is not None:
            assert self.timers.at <= self.clock.now + PAUSE


TestSpared = Spared.TestCase


def test_interactive_work_without_a_gap_does_not_starve_batch_for_ever() -> None:
    """Two slots, and always one interactive request inside: after ten pauses batch gets one slot."""
    queue, clock, timers = queue_of()
    queue.ease(EASED)
    inside = queue.enter("interactive")
    first, second = queue.enter("batch"), queue.enter("batch")
    started: list[float] = []
    began = clock.now
    while clock.now < began + 25 * PAUSE and len(started) < 2:
        following = queue.enter("interactive")
        inside.__exit__(None, None, None)
        inside = following
        for place in (first, second):
            if place.held:
                started.append(clock.now - began)
                assert queue.snapshot.running == 2
                place.__exit__(None, None, None)
                place.granted_at = None
        timers.pass_(10.0)
    assert started == [10 * PAUSE, 11 * PAUSE]
