"""What the governor is told and what it says. Frozen; None is unknown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

ThermalState = Literal["cool", "warm", "throttled", "critical", "unknown"]
Sign = Literal["near", "bits", "counters"]
"""A sign of heat: close to the slowdown threshold; thermal reason bits; thermal counters that run."""
CPU = "cpu"
"""The name of the CPU package among the devices; a GPU's name is its id."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The `[governor]` section. Degrees Celsius, seconds; `slow` is a fraction of the baseline."""

    slow: float = 0.8
    throttle_margin: float = 2.0
    hold: float = 5.0
    dwell: float = 60.0


@dataclass(frozen=True, slots=True)
class Reading:
    """What one sample says about the heat of one device."""

    headroom: float | None = None
    """Degrees below the slowdown threshold; zero or less is at or above it."""
    margin: float | None = None
    """The driver's own distance to the nearest limit. It may mean the maximum operating temperature, where
    many laptops run all day, so it can make a device warm and never critical."""
    reasons: int | None = None
    """The clock event reasons, as a mask."""
    slowed_ns: int | None = None
    """A counter: nanoseconds that heat has held the clocks down so far."""
    alarms: bool = True
    """At the threshold this device is in danger. False for a CPU, which only begins to slow down there."""

    @property
    def nearest(self) -> float | None:
        """Degrees to the limit, the threshold's where it is known."""
        return self.headroom if self.headroom is not None else self.margin

    @property
    def known(self) -> bool:
        """At least one sign of heat could be seen."""
        return self.nearest is not None or self.reasons is not None or self.slowed_ns is not None


@dataclass(frozen=True, slots=True)
class DeviceHeat:
    """One device as the governor sees it."""

    state: ThermalState = "unknown"
    since: float | None = None
    """By the governor's clock, when this state began."""
    signs: tuple[Sign, ...] = ()
    """Of heat, now."""
    factor: float = 1.0
    """Measured over usual speed of what runs there, in (0, 1]; 1 while it is not `throttled`."""
    slowdown_in_s: float | None = None
    """Seconds until the slowdown threshold at the rate of now; None where it does not rise towards it."""
    ends_in_s: float | None = None
    """Of a critical device: seconds until it may be cool again, at the earliest."""
    readable: bool = True
    """Its last sample could be read."""


@dataclass(frozen=True, slots=True)
class Change:
    """A device's state has changed."""

    device: str
    before: ThermalState
    after: ThermalState
    why: str
    """One sentence for people, with the figures."""


@dataclass(frozen=True, slots=True)
class HeatView:
    """All devices at one moment."""

    devices: Mapping[str, DeviceHeat] = field(default_factory=dict)
    thermal: ThermalState = "unknown"
    """The worst of all devices that tell anything about heat."""
    factor: float = 1.0
    """The lowest of all devices."""
    eases: str | None = None
    """Why batch work should wait, as one sentence; None when it need not."""
