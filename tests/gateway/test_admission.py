"""The queue: bounds hold, no slot is lost, interactive goes first, whoever leaves frees only its own."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from appliance.errors import Rejected
from appliance.gateway.admission import Admission, Place
from appliance.routing import Lane
from tests.gateway.house import until


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Queue(RuleBasedStateMachine):
    """Random arrivals, departures and resizes against a plain model of the queue."""

    @initialize(slots=st.integers(1, 4), limit=st.integers(0, 5))
    def start(self, slots: int, limit: int) -> None:
        self.slots, self.limit = slots, limit
        self.queue = Admission(slots, limit)
        self.waiting: dict[Lane, list[Place]] = {"interactive": [], "batch": []}
        self.running: list[Place] = []

    @rule(lane=st.sampled_from(["interactive", "batch"]))
    def enter(self, lane: Lane) -> None:
        n_waiting = sum(map(len, self.waiting.values()))
        must_refuse = n_waiting >= self.limit and (len(self.running) >= self.slots or n_waiting > 0)
        if must_refuse:
            with pytest.raises(Rejected) as refused:
                self.queue.enter(lane)
            assert refused.value.http_status == 429
            assert 1 <= (refused.value.retry_after_s or 0) <= 120
            return
        place = self.queue.enter(lane)
        (self.running if place.held else self.waiting[lane]).append(place)
        assert place.held == (place in self.running)

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        everyone = [*self.running, *self.waiting["interactive"], *self.waiting["batch"]]
        if not everyone:
            return
        place = everyone[data.draw(st.integers(0, len(everyone) - 1))]
        place.__exit__(None, None, None)
        place.__exit__(None, None, None)  # twice must not free another's slot
        for group in (self.running, *self.waiting.values()):
            if place in group:
                group.remove(place)
        self._grant()

    @rule(slots=st.integers(1, 4))
    def resize(self, slots: int) -> None:
        self.slots = slots
        self.queue.resize(slots)
        self._grant()

    def _grant(self) -> None:
        for waiting in self.waiting.values():
            while waiting and len(self.running) < self.slots:
                self.running.append(waiting.pop(0))

    @invariant()
    def agrees_with_the_model(self) -> None:
        if not hasattr(self, "queue"):
            return
        now = self.queue.snapshot
        assert now.running == len(self.running)
        assert dict(now.lanes) == {lane: len(places) for lane, places in self.waiting.items()}
        assert all(place.held for place in self.running)
        assert not any(place.held for places in self.waiting.values() for place in places)


TestQueue = Queue.TestCase


async def test_a_freed_slot_goes_to_the_first_interactive_waiter_then_to_batch() -> None:
    queue = Admission(1, 5)
    order: list[str] = []

    async def one(name: str, lane: Lane) -> None:
        with queue.enter(lane) as place:
            assert await place.wait(None)
            order.append(name)

    arrivals: list[tuple[str, Lane]] = [
        ("b1", "batch"), ("i1", "interactive"), ("b2", "batch"), ("i2", "interactive"),
    ]  # fmt: skip
    async with asyncio.TaskGroup() as tasks:
        with queue.enter("interactive"):
            for name, lane in arrivals:
                tasks.create_task(one(name, lane))
            await until(lambda: queue.snapshot.waiting == 4)
    assert order == ["i1", "i2", "b1", "b2"]


@given(st.integers(0, 3), st.integers(0, 6))
def test_a_waiter_cancelled_in_the_moment_of_its_grant_gives_the_slot_on(turns: int, extra: int) -> None:
    async def scene() -> None:
        queue = Admission(1, 10)

        async def one() -> None:
            with queue.enter("interactive") as place:
                await place.wait(None)
                await asyncio.sleep(0)

        first = queue.enter("interactive")
        tasks = [asyncio.create_task(one()) for _ in range(2 + extra)]
        await asyncio.sleep(0)
        first.__exit__(None, None, None)
        for _ in range(turns):
            await asyncio.sleep(0)
        tasks[0].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert queue.snapshot.running == queue.snapshot.waiting == 0

    asyncio.run(scene())


async def test_waiting_too_long_keeps_the_place_in_the_queue() -> None:
    queue = Admission(1, 2)
    with queue.enter("interactive") as first, queue.enter("interactive") as second:
        assert not await second.wait(0.0)
        assert queue.snapshot.waiting == 1
        first.__exit__(None, None, None)
        assert await second.wait(0.0)


def test_the_prediction_is_unknown_until_measured_and_zero_with_a_free_slot() -> None:
    clock = Clock()
    queue = Admission(1, 10, clock=clock)
    assert queue.predicted_wait() == 0.0
    with queue.enter("interactive") as place:
        assert queue.predicted_wait() is None
        clock.now += 4
        place.completed = True
    with queue.enter("interactive"):
        assert queue.predicted_wait() == pytest.approx(4.0)
        clock.now += 3
        assert queue.predicted_wait() == pytest.approx(1.0)
        with queue.enter("interactive"), queue.enter("batch"):
            assert queue.predicted_wait() == pytest.approx(5.0)
            assert queue.predicted_wait("batch") == pytest.approx(9.0)


def test_requests_that_outlive_a_history_of_short_ones_raise_the_prediction() -> None:
    clock = Clock()
    queue = Admission(2, 10, clock=clock)
    with queue.enter("interactive") as place:
        clock.now += 0.5
        place.completed = True
    with queue.enter("interactive"), queue.enter("interactive"):
        clock.now += 0.5
        assert (queue.predicted_wait() or 0) > 0, "no slot is free"
        clock.now += 59.5
        assert queue.predicted_wait() == pytest.approx(30.0)
        clock.now += 60
        assert queue.predicted_wait() == pytest.approx(60.0)


def test_a_request_that_was_cut_short_teaches_nothing() -> None:
    clock = Clock()
    queue = Admission(1, 10, clock=clock)
    with queue.enter("interactive"):
        clock.now += 0.001
    with queue.enter("interactive"):
        assert queue.snapshot.predicted_wait is None


@given(st.floats(0.05, 1.0), st.floats(0.1, 60.0), st.floats(0.0, 0.99), st.integers(0, 5), st.integers(1, 4))
def test_under_constant_heat_the_prediction_over_the_factor_is_the_real_wait(
    factor: float, service: float, part: float, ahead: int, slots: int
) -> None:
    """`service` are real seconds of one request on the hot machine; the router divides by the factor."""
    clock = Clock()
    queue = Admission(slots, 10, clock=clock, learn_scale=lambda: factor)
    with queue.enter("interactive") as place:
        clock.now += service
        place.completed = True
    for _ in range(slots):
        queue.enter("interactive")
    clock.now += service * part
    for _ in range(ahead):
        queue.enter("interactive")
    predicted = queue.predicted_wait()
    assert predicted is not None
    real = service * (1 - part) + ahead * service / slots
    assert predicted / factor == pytest.approx(real, rel=1e-6, abs=1e-6)


def test_a_full_queue_of_a_hot_machine_asks_for_real_seconds() -> None:
    clock = Clock()
    queue = Admission(1, 1, clock=clock, learn_scale=lambda: 0.5)
    with queue.enter("interactive") as place:
        clock.now += 20
        place.completed = True
    queue.enter("interactive")
    queue.enter("interactive")
    with pytest.raises(Rejected) as refused:
        queue.enter("interactive")
    assert refused.value.retry_after_s == 40


def test_what_was_learned_hot_is_right_when_it_is_cool_again() -> None:
    clock, speed = Clock(), [0.5]
    queue = Admission(1, 10, clock=clock, learn_scale=lambda: speed[0])
    with queue.enter("interactive") as place:
        clock.now += 8
        place.completed = True
    speed[0] = 1.0
    with queue.enter("interactive"):
        assert queue.predicted_wait() == pytest.approx(4.0)
