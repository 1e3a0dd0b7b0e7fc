"""How fast this machine decodes when it is well, and how fast it decodes now.

Speed depends on more than heat, so each (model, plan, power source, number of streams, context length) has
a baseline of its own; four streams or a long context would look throttled otherwise. Pure: time and states
come from the caller.

The baseline is the median of what was measured while cool, and its spread is what such speeds differ by on
their own. A machine that always reports heat never is cool, so the first samples under heat stand in, and
are then frozen: a machine that gets slower under heat must not pull down what it is measured against.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

from appliance.monitor.governor.values import ThermalState

PowerSource = Literal["ac", "battery", "unknown"]

MINIMUM = 5
"""Samples before there is a baseline."""
RECENT = 3
"""Requests whose median is the speed of now: one slow request is an accident, two of three are not."""
LOWEST = 0.05
"""The factor divides estimates, so it stays above zero."""
_KEPT = 64
_FRESH_S = 300.0
"""Older measurements say nothing about now: a machine that sends all away must be tried again."""
_MAX_KEYS = 256
_MAX_PLACES = 64
_MAD_TO_SIGMA = 1.4826
"""Of a normal distribution: its standard deviation over the median of the distances to its median."""
_BEYOND = 2.0
"""Standard deviations below the baseline that chance still explains."""


@dataclass(frozen=True, slots=True)
class SpeedKey:
    """Requests whose speeds can be compared. Use `speed_key` to build one from a request."""

    model: str
    plan: str
    """Anything that changes with the plan, such as its flags."""
    power: str
    """What feeds the machine; see `power_source`."""
    concurrency: int
    """A bucket: the next power of two."""
    context: int
    """A bucket: the next power of four, in tokens, at least 1024."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """The usual speed of one key."""

    tokens_per_second: float
    """The median."""
    spread: float
    """Robust standard deviation over the median: 0.1 means that it usually differs by 10 %."""
    n: int
    """Samples that it comes from."""
    cool: bool
    """It was measured without heat."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The speed of now over the usual one."""

    ratio: float
    spread: float = 0.0
    """Of the baselines that it is held against, the largest."""

    def is_slow(self, limit: float) -> bool:
        """Under `limit`, and lower than chance explains."""
        return self.ratio < min(limit, 1.0 - _BEYOND * self.spread)


def speed_key(model: str, plan: str, power: PowerSource, *, streams: int, tokens: int) -> SpeedKey:
    """The key of a request that ran beside `streams - 1` others with `tokens` in its context."""
    return SpeedKey(model, plan, power, _bucket(streams, 1, 2), _bucket(tokens, 1024, 4))


def power_source(plugged: bool | None) -> PowerSource:
    """From the battery's `plugged`. A machine without a battery is on mains: pass True."""
    return "unknown" if plugged is None else "ac" if plugged else "battery"


@dataclass(slots=True)
class _Samples:
    cool: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))
    hot: list[float] = field(default_factory=list)

    def baseline(self) -> Baseline | None:
        cool = len(self.cool) >= MINIMUM
        chosen = self.cool if cool else self.hot
        if len(chosen) < MINIMUM:
            return None
        middle = median(chosen)
        spread = _MAD_TO_SIGMA * median(abs(speed - middle) for speed in chosen) / middle
        return Baseline(middle, spread, len(chosen), cool)

    def learn(self, speed: float, state: ThermalState) -> None:
        if state in ("cool", "unknown"):
            self.cool.append(speed)
        elif state == "warm" and len(self.hot) < MINIMUM:
            self.hot.append(speed)


class SpeedTracker:
    """Baselines per key, and the ratio of now per place. Owned by the governor; bounded."""

    def __init__(self) -> None:
        self._samples: OrderedDict[SpeedKey, _Samples] = OrderedDict()
        self._recent: OrderedDict[str, deque[tuple[float, Measured]]] = OrderedDict()

    def observe(
        self, key: SpeedKey, tokens_per_second: float, state: ThermalState, places: Iterable[str], now: float
    ) -> None:
        """Take one finished request that ran on `places` while the worst of them was in `state`.

        Speeds that are not positive are no measurement.
        """
        if not 0 < tokens_per_second < float("inf"):
            return
        samples = self._of(key)
        baseline = samples.baseline()
        if baseline is not None:
            measured = Measured(tokens_per_second / baseline.tokens_per_second, baseline.spread)
            for place in places:
                self._at(place).append((now, measured))
        samples.learn(tokens_per_second, state)

    def seed(self, key: SpeedKey, speeds: Iterable[float]) -> None:
        """Speeds of earlier days that were measured while cool, oldest first. They say nothing about now."""
        samples = self._of(key)
        for speed in speeds:
            if 0 < speed < float("inf"):
                samples.cool.append(speed)

    def baseline(self, key: SpeedKey) -> Baseline | None:
        """The usual speed; None before `MINIMUM` samples."""
        samples = self._samples.get(key)
        return samples.baseline() if samples is not None else None

    def measured(self, place: str, now: float) -> Measured | None:
        """Measured over baseline of what ran on a place, the median of the last three requests; None until
        there are three fresh ones.
        """
        fresh = [seen for at, seen in self._recent.get(place, ()) if now - at <= _FRESH_S]
        if len(fresh) < RECENT:
            return None
        return Measured(median(seen.ratio for seen in fresh), max(seen.spread for seen in fresh))

    def factor(self, place: str, now: float) -> float:
        """The ratio as a multiplier for speed estimates, in (0, 1]; 1.0 while unknown."""
        measured = self.measured(place, now)
        return 1.0 if measured is None else max(LOWEST, min(1.0, measured.ratio))

    def _of(self, key: SpeedKey) -> _Samples:
        samples = self._samples.setdefault(key, _Samples())
        self._samples.move_to_end(key)
        while len(self._samples) > _MAX_KEYS:
            self._samples.popitem(last=False)
        return samples

    def _at(self, place: str) -> deque[tuple[float, Measured]]:
        recent = self._recent.setdefault(place, deque(maxlen=RECENT))
        self._recent.move_to_end(place)
        while len(self._recent) > _MAX_PLACES:
            self._recent.popitem(last=False)
        return recent


def _bucket(value: int, start: int, base: int) -> int:
    bucket = start
    while bucket < value:
        bucket *= base
    return bucket
