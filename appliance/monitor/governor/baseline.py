"""How fast this machine decodes when it is well, and how fast it decodes now.

Speed depends on more than heat, so each (model, plan, power source, number of streams, context length) has
a baseline of its own; four streams or a long context would look throttled otherwise. Pure: time and states
come from the caller.

The baseline is the median of what was measured while cool. A machine that always reports heat never is
cool, so the first samples under heat stand in, and are then frozen: a machine that gets slower under heat
must not pull down what it is measured against.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

from appliance.monitor.governor.states import ThermalState

PowerSource = Literal["ac", "battery", "unknown"]

MINIMUM = 5
"""Samples before there is a baseline."""
_KEPT = 64
_RECENT = 3
"""Requests whose median is the speed of now: one slow request is an accident, two of three are not."""
_FRESH_S = 300.0
"""Older measurements say nothing about now: a machine that sends all away must be tried again."""
_MAX_KEYS = 256
_LOWEST = 0.05
"""The factor divides estimates, so it stays above zero."""


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

    def baseline(self) -> float | None:
        if len(self.cool) >= MINIMUM:
            return median(self.cool)
        return median(self.hot) if len(self.hot) >= MINIMUM else None

    def learn(self, speed: float, state: ThermalState) -> None:
        if state in ("cool", "unknown"):
            self.cool.append(speed)
        elif state == "warm" and len(self.hot) < MINIMUM:
            self.hot.append(speed)


class SpeedTracker:
    """Baselines per key, and the ratio of now. Owned by the monitor; bounded."""

    def __init__(self) -> None:
        self._samples: OrderedDict[SpeedKey, _Samples] = OrderedDict()
        self._recent: deque[tuple[float, float]] = deque(maxlen=_RECENT)

    def observe(self, key: SpeedKey, tokens_per_second: float, state: ThermalState, now: float) -> None:
        """Take one finished request. Speeds that are not positive are no measurement."""
        if not 0 < tokens_per_second < float("inf"):
            return
        samples = self._samples.setdefault(key, _Samples())
        self._samples.move_to_end(key)
        while len(self._samples) > _MAX_KEYS:
            self._samples.popitem(last=False)
        baseline = samples.baseline()
        if baseline is not None:
            self._recent.append((now, tokens_per_second / baseline))
        samples.learn(tokens_per_second, state)

    def baseline(self, key: SpeedKey) -> float | None:
        """Tokens per second when well; None before `MINIMUM` samples."""
        samples = self._samples.get(key)
        return samples.baseline() if samples is not None else None

    def ratio(self, now: float) -> float | None:
        """Measured over baseline, the median of the last three requests; None until there are three fresh
        ones.
        """
        fresh = [ratio for at, ratio in self._recent if now - at <= _FRESH_S]
        return median(fresh) if len(fresh) >= _RECENT else None

    def factor(self, now: float) -> float:
        """The ratio as a multiplier for speed estimates, in (0, 1]; 1.0 while unknown."""
        ratio = self.ratio(now)
        return 1.0 if ratio is None else max(_LOWEST, min(1.0, ratio))


def _bucket(value: int, start: int, base: int) -> int:
    bucket = start
    while bucket < value:
        bucket *= base
    return bucket
