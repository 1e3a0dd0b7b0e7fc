"""The breaker against a clock that the test moves."""

from __future__ import annotations

import pytest

from appliance.remotes import Breaker, Outcome


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> Breaker:
    return Breaker(clock=clock, jitter=lambda: 0.0)


def fail(breaker: Breaker, times: int, outcome: Outcome = "5xx") -> None:
    for _ in range(times):
        breaker.report(outcome)


@pytest.mark.parametrize("outcome", ["refused", "timeout", "reset", "5xx"])
def test_three_failures_open_it(breaker: Breaker, outcome: Outcome) -> None:
    fail(breaker, 2, outcome)
    assert (breaker.state, breaker.allows) == ("closed", True)
    fail(breaker, 1, outcome)
    assert (breaker.state, breaker.allows) == ("open", False)


@pytest.mark.parametrize("outcome", ["4xx", "cancelled"])
def test_what_never_counts(breaker: Breaker, outcome: Outcome) -> None:
    fail(breaker, 50, outcome)
    assert breaker.allows
    fail(breaker, 2)
    breaker.report(outcome)
    fail(breaker, 1)
    assert not breaker.allows


def test_a_success_forgets_the_failures(breaker: Breaker) -> None:
    fail(breaker, 2)
    breaker.report("ok")
    fail(breaker, 2)
    assert breaker.state == "closed"


def test_old_failures_are_forgotten(breaker: Breaker, clock: Clock) -> None:
    for _ in range(6):
        breaker.report("timeout")
        clock.now += 61
    assert breaker.state == "closed"


def test_half_open_lets_exactly_one_through(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, 3)
    clock.now += 4.9
    assert breaker.state == "open"
    assert breaker.reopens_in_s == pytest.approx(0.1)
    clock.now += 0.2
    assert (breaker.state, breaker.allows) == ("half-open", True)
    breaker.begin()
    assert (breaker.state, breaker.allows) == ("half-open", False)
    breaker.report("ok")
    assert (breaker.state, breaker.allows) == ("closed", True)


def test_the_back_off_doubles_up_to_two_minutes(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, 3)
    waits = []
    for _ in range(7):
        wait = breaker.reopens_in_s
        assert wait is not None
        waits.append(wait)
        clock.now += wait
        breaker.begin()
        breaker.report("timeout")
    assert waits == [5, 10, 20, 40, 80, 120, 120]


def test_a_success_starts_the_back_off_afresh(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, 3)
    clock.now += 5
    fail(breaker, 1)
    clock.now += 10
    breaker.report("ok")
    fail(breaker, 3)
    assert breaker.reopens_in_s == 5


def test_a_trial_that_the_client_cancels_leaves_room_for_the_next(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, 3)
    clock.now += 5
    breaker.begin()
    breaker.report("cancelled")
    assert (breaker.state, breaker.allows) == ("half-open", True)


def test_a_trial_that_is_refused_as_wrong_shows_that_the_remote_is_back(
    breaker: Breaker, clock: Clock
) -> None:
    fail(breaker, 3)
    clock.now += 5
    breaker.begin()
    breaker.report("4xx")
    assert breaker.state == "closed"


def test_a_trial_that_nobody_ends_is_given_up(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, 3)
    clock.now += 5
    breaker.begin()
    clock.now += 119
    assert not breaker.allows
    clock.now += 2
    assert breaker.allows


def test_late_failures_while_open_change_nothing(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, 3)
    clock.now += 1
    fail(breaker, 10)
    assert breaker.reopens_in_s == 4


@pytest.mark.parametrize("outcome", ["4xx", "5xx"])
def test_retry_after_is_honoured(breaker: Breaker, clock: Clock, outcome: Outcome) -> None:
    breaker.report(outcome, retry_after_s=30)
    assert (breaker.state, breaker.allows, breaker.reopens_in_s) == ("open", False, 30)
    clock.now += 30
    assert (breaker.state, breaker.allows) == ("closed", True)


def test_an_endless_retry_after_is_cut(breaker: Breaker) -> None:
    breaker.report("4xx", retry_after_s=86_400)
    assert breaker.reopens_in_s == 120


def test_jitter_spreads_many_appliances(clock: Clock) -> None:
    waits = set()
    for _ in range(20):
        one = Breaker(clock=clock)
        fail(one, 3)
        assert one.reopens_in_s is not None
        waits.add(round(one.reopens_in_s, 6))
    assert len(waits) > 1
    assert all(4 <= wait <= 6 for wait in waits)
