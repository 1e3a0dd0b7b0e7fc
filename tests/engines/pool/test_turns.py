"""Whose turn it is: rules that hold for any machine, and a day of requests played through them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.engines.pool import (
    COOL_S,
    Standing,
    Turn,
    cool_s,
    may_leave_at,
    next_wanted,
    over_at,
    unload_at,
    victims,
)
from appliance.engines.pool.turns import LONGEST_COOL_S

TURN = Turn()
seconds = st.floats(0, 10_000, allow_nan=False)
standings = st.builds(
    Standing,
    ref=st.sampled_from(["a", "b", "c", "d"]),
    state=st.sampled_from(["cold", "loading", "ready", "failed"]),
    running=st.integers(0, 3),
    waiting=st.integers(0, 3),
    waiting_since=st.none() | seconds,
    ready_since=st.none() | seconds,
    idle_since=st.none() | seconds,
    last_used=seconds,
    pinned=st.booleans(),
    keep_s=st.none() | seconds,
    load_s=st.none() | st.floats(0, 300),
    retry_at=seconds,
)


@given(st.lists(standings, max_size=6), seconds)
def test_only_a_model_that_somebody_waits_for_and_that_may_be_loaded_is_next(
    models: list[Standing], now: float
) -> None:
    found = next_wanted(models, now)
    if found is None:
        assert not any(m.waiting and m.state in ("cold", "failed") and m.retry_at <= now for m in models)
        return
    assert found.waiting > 0
    assert found.state in ("cold", "failed")
    assert found.retry_at <= now


def test_who_waits_longest_is_next() -> None:
    early, late = (
        Standing("late", "cold", waiting=9, waiting_since=20.0),
        Standing("early", "cold", waiting=1, waiting_since=10.0),
    )
    assert next_wanted([early, late], 30.0) == late


@given(st.lists(standings, max_size=6))
def test_nobody_is_evicted_who_is_pinned_or_not_ready_or_the_wanted_one(models: list[Standing]) -> None:
    found = victims(models, "a")
    assert all(one.state == "ready" and not one.pinned and one.ref != "a" for one in found)
    idle = [one.has_requests for one in found]
    assert idle == sorted(idle), "those without a request go first"
    for has in (False, True):
        used = [one.last_used for one in found if one.has_requests is has]
        assert used == sorted(used), "the least recently used first"


@given(standings)
def test_a_turn_ends(model: Standing) -> None:
    """Whatever its requests are, a model that became ready makes way some time."""
    ready = replace(model, state="ready", ready_since=100.0)
    assert may_leave_at(ready, TURN) <= 100.0 + TURN.most_s
    assert over_at(ready, TURN) >= 100.0 + TURN.least_s


def test_a_swap_that_takes_long_makes_turns_longer() -> None:
    quick = Standing("a", "ready", running=1, ready_since=0.0, load_s=0.5)
    slow = replace(quick, load_s=20.0)
    assert over_at(quick, TURN) == TURN.least_s
    assert over_at(slow, TURN) == pytest.approx(80.0), "at most a fifth of the time goes into loading"
    assert over_at(replace(quick, load_s=500.0), TURN) == TURN.most_s


def test_an_idle_model_stays_a_moment_for_its_callers_next_request() -> None:
    idle = Standing("a", "ready", ready_since=0.0, idle_since=5.0, load_s=4.0)
    assert may_leave_at(idle, TURN) == pytest.approx(6.0)
    assert may_leave_at(replace(idle, idle_since=50.0), TURN) == 16.0, "after its turn it goes at once"


@given(standings)
def test_what_is_pinned_in_use_or_kept_for_ever_is_not_unloaded(model: Standing) -> None:
    at = unload_at(model)
    if model.pinned or model.keep_s is None or model.has_requests or model.state != "ready":
        assert at is None
    else:
        assert at is not None


def test_after_keep_alive_without_a_request_it_is_unloaded() -> None:
    model = Standing("a", "ready", idle_since=100.0, last_used=90.0, keep_s=30.0)
    assert unload_at(model) == 130.0
    loaded_by_hand = replace(model, ready_since=120.0)
    assert unload_at(loaded_by_hand) == 150.0, "since it was loaded, when no request has come since"


@given(st.integers(0, 1000))
def test_a_model_that_keeps_failing_is_left_alone_ever_longer_but_not_for_ever(failures: int) -> None:
    assert cool_s(failures) <= cool_s(failures + 1) <= LONGEST_COOL_S
    assert (cool_s(failures) == 0) is (failures == 0)
    assert cool_s(1) == COOL_S


@dataclass
class Day:
    """Models that never fit together, and clients that ask one of them in a loop. No process, no clock."""

    turn: Turn
    load_s: float
    work_s: float
    clients: list[str]
    now: float = 0.0
    resident: str | None = None
    ready_since: float = 0.0
    idle_since: dict[str, float] = field(default_factory=dict)
    arrived: list[float] = field(default_factory=list)
    busy: dict[int, float] = field(default_factory=dict)
    """Client -> when its request at work ends."""
    swaps: int = 0
    done: dict[str, int] = field(default_factory=dict)
    longest_wait: float = 0.0

    def play(self, until: float) -> None:
        """Each client sends its next request as soon as the last one is answered. One slot per client."""
        self.arrived = [0.0] * len(self.clients)
        draining = False
        while self.now < until:
            for client, end in list(self.busy.items()):
                if end <= self.now:
                    del self.busy[client]
                    model = self.clients[client]
                    self.done[model] = self.done.get(model, 0) + 1
                    self.arrived[client] = self.now
                    self.idle_since[model] = self.now
            if not draining:
                for client, model in enumerate(self.clients):
                    if model == self.resident and client not in self.busy:
                        self.longest_wait = max(self.longest_wait, self.now - self.arrived[client])
                        self.busy[client] = self.now + self.work_s
            standings = self._standings()
            wanted = next_wanted(standings, self.now)
            if wanted is not None:
                leave = victims(standings, wanted.ref)
                draining = all(may_leave_at(one, self.turn) <= self.now for one in leave)
                if draining and not self.busy:
                    self.now += self.load_s
                    self.resident, self.ready_since, draining = wanted.ref, self.now, False
                    self.swaps += 1
                    continue
            self.now = round(self.now + 0.05, 6)

    def _standings(self) -> list[Standing]:
        found = []
        for model in sorted(set(self.clients)):
            mine = [client for client, one in enumerate(self.clients) if one == model]
            running = sum(client in self.busy for client in mine)
            waiting = len(mine) - running
            found.append(
                Standing(
                    model, "ready" if model == self.resident else "cold", running=running, waiting=waiting,
                    waiting_since=min((self.arrived[c] for c in mine if c not in self.busy), default=None),
                    ready_since=self.ready_since if model == self.resident else None,
                    idle_since=None if running or waiting else self.idle_since.get(model, 0.0),
                    last_used=self.idle_since.get(model, 0.0), load_s=self.load_s,
                )
            )  # fmt: skip
        return found


@settings(max_examples=25, deadline=None)
@given(
    load_s=st.floats(0.5, 20),
    work_s=st.floats(0.1, 5),
    models=st.integers(2, 3),
    seed=st.integers(0, 1 << 30),
)
def test_models_asked_in_turn_do_not_thrash_and_everyone_is_served(
    load_s: float, work_s: float, models: int, seed: int
) -> None:
    names = ["a", "b", "c"][:models]
    clients = names * 3
    random.Random(seed).shuffle(clients)
    day = Day(TURN, load_s, work_s, clients)
    day.play(600.0)
    turn_s = min(TURN.most_s, max(TURN.least_s, TURN.swaps * load_s))
    assert day.swaps <= 600.0 / turn_s + models, "a swap for each turn, not one for each request"
    each = turn_s + work_s + load_s + 0.2
    assert day.longest_wait <= models * each, "nobody waits for longer than the turns of all others"
    assert set(day.done) == set(names)
