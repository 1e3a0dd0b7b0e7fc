"""Whose turn it is: which model is loaded next, who makes way for it, and from when on. Pure; seconds of any
steady clock.

Models that don't fit together take turns. A turn lasts at least as long as makes the swap worth it, so that
requests are collected per model instead of one swap for each; and at most so long while others wait, so that
everyone's turn comes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

State = Literal["cold", "loading", "ready", "failed"]

COOL_S = 15.0
"""After a load that failed, requests don't load it again for so long; twice as long after each more."""
LONGEST_COOL_S = 600.0


@dataclass(frozen=True, slots=True)
class Turn:
    """How long turns are."""

    least_s: float = 10.0
    """A model that others wait for serves on for so long after it was loaded, if it has requests."""
    swaps: float = 4.0
    """And for so many times its own load, so that at most a fifth of the time goes into loading."""
    most_s: float = 120.0
    linger_s: float = 0.25
    """An idle model is kept for this share of its load time, for its caller's next request."""
    most_linger_s: float = 2.0


@dataclass(frozen=True, slots=True)
class Standing:
    """One model, as far as its turn is concerned."""

    ref: str
    state: State
    running: int = 0
    """Requests inside the engine."""
    waiting: int = 0
    """Requests that wait for a slot, or for the load."""
    waiting_since: float | None = None
    """Since when the oldest of them waits."""
    ready_since: float | None = None
    idle_since: float | None = None
    """Since when it has had no request; None while it has."""
    last_used: float = 0.0
    pinned: bool = False
    keep_s: float | None = None
    """It is unloaded after so long without a request; None: never."""
    load_s: float | None = None
    """How long its last load took."""
    retry_at: float = 0.0
    """After a load that failed: requests load it again from then on."""

    @property
    def has_requests(self) -> bool:
        return self.running > 0 or self.waiting > 0


def next_wanted(models: Iterable[Standing], now: float) -> Standing | None:
    """The model to load next: the one whose request waits longest; None when none waits for a load.

    One whose load failed waits until its `retry_at`.
    """
    wanted = [
        model
        for model in models
        if model.state in ("cold", "failed") and model.waiting > 0 and model.retry_at <= now
    ]
    return min(wanted, key=lambda model: (_or_now(model.waiting_since, now), model.ref), default=None)


def victims(models: Iterable[Standing], wanted: str) -> tuple[Standing, ...]:
    """Who could make way for `wanted`, in the order in which they do.

    Unpinned ones that are ready: first those without a request, then the others; the least recently used
    first.
    """
    able = [model for model in models if model.state == "ready" and not model.pinned and model.ref != wanted]
    return tuple(sorted(able, key=lambda model: (model.has_requests, model.last_used, model.ref)))


def over_at(model: Standing, turn: Turn) -> float:
    """When its turn is over, if others wait."""
    began = model.ready_since if model.ready_since is not None else -math.inf
    swap = turn.swaps * (model.load_s or 0.0)
    return began + min(turn.most_s, max(turn.least_s, swap))


def may_leave_at(model: Standing, turn: Turn) -> float:
    """From when on it takes no new request and makes way for another model that is wanted.

    One without a request makes way a moment after its last one ended: its caller may be about to send the
    next. One with requests does so when its turn is over.
    """
    over = over_at(model, turn)
    if model.has_requests or model.idle_since is None:
        return over
    linger = min(turn.most_linger_s, turn.linger_s * (model.load_s or 0.0))
    return min(over, model.idle_since + linger)


def unload_at(model: Standing) -> float | None:
    """When it is unloaded since nobody has used it (`keep_alive`); None: not as it stands now."""
    if model.state != "ready" or model.pinned or model.keep_s is None or model.has_requests:
        return None
    idle = model.idle_since if model.idle_since is not None else model.last_used
    return max(idle, model.ready_since if model.ready_since is not None else idle) + model.keep_s


def cool_s(failures: int) -> float:
    """So long a model is left alone after so many loads in a row that failed."""
    return 0.0 if failures < 1 else min(LONGEST_COOL_S, COOL_S * 2.0 ** (min(failures, 10) - 1))


def _or_now(since: float | None, now: float) -> float:
    return now if since is None else since
