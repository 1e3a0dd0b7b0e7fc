"""All devices of the machine: each has a governor of its own, and together they say what the router uses.

Used by the monitor with the sensors' samples, and by the replay with those of a trace. It owns no clock: all
times come from the caller and are seconds on any steady clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from appliance.monitor.governor import trend, words
from appliance.monitor.governor.baseline import Baseline, SpeedKey, SpeedTracker
from appliance.monitor.governor.states import Governor, ends_in_s, step, worst
from appliance.monitor.governor.values import Change, DeviceHeat, HeatView, Reading, Rule, ThermalState
from appliance.units import duration

AHEAD_S = 20.0
"""A device that would be at its threshold within so long makes batch work wait."""
_MOST_DEVICES = 64


@dataclass(slots=True)
class _Device:
    governor: Governor
    alarms: bool = True
    rising_until: float | None = None
    """It rose fast towards its threshold; batch work waits until then."""


class Heat:
    """The memory of the thermal rule. Lives where its owner lives; bounded."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._devices: dict[str, _Device] = {}
        self._suspects: set[str] = set()
        """Devices that were forgotten while they were critical: at the threshold they are so at once."""
        self._counts: frozenset[str] | None = None
        self._speeds = SpeedTracker()

    def use(self, rule: Rule) -> None:
        """Take over changed settings; what is known stays."""
        self._rule = rule

    def take(self, readings: Mapping[str, Reading], now: float) -> tuple[Change, ...]:
        """One more sample: every device takes a step, those that are not in it without a reading."""
        found = []
        for name in [*self._devices, *(name for name in readings if name not in self._devices)]:
            if name not in self._devices and len(self._devices) >= _MOST_DEVICES:
                continue
            device = self._devices.get(name) or self._new(name, readings.get(name), now)
            change = self._step(name, device, readings.get(name), now)
            if change is not None:
                found.append(change)
        return tuple(found)

    def observe(self, key: SpeedKey, tokens_per_second: float, places: Iterable[str], now: float) -> None:
        """Take the decode speed of a finished request that ran on `places`."""
        places = frozenset(places)
        state = worst(
            device.governor.state
            for name, device in self._devices.items()
            if device.governor.last is not None and name in places
        )
        self._speeds.observe(key, tokens_per_second, state, places, now)

    def seed(self, key: SpeedKey, speeds: Iterable[float]) -> None:
        """Speeds of earlier days, measured while cool."""
        self._speeds.seed(key, speeds)

    def baseline(self, key: SpeedKey) -> Baseline | None:
        """The usual speed of a key; None while unknown."""
        return self._speeds.baseline(key)

    def forget(self, devices: Iterable[str] | None = None) -> tuple[Change, ...]:
        """Nothing of ours heats these devices (None: any) any more: old heat does not count. Speeds stay."""
        found = []
        for name in list(self._devices) if devices is None else devices:
            gone = self._devices.pop(name, None)
            if gone is None or gone.governor.state == "unknown":
                continue
            found.append(Change(name, gone.governor.state, "unknown", "no engine heats it, so nobody looks"))
            if gone.governor.state == "critical" and len(self._suspects) < _MOST_DEVICES:
                self._suspects.add(name)
        return tuple(found)

    def count(self, devices: frozenset[str] | None) -> None:
        """Which devices count for the whole machine (None: all). Any is still shown by itself."""
        self._counts = devices

    def view(self, now: float) -> HeatView:
        """All devices now."""
        devices = {name: self._view(name, device, now) for name, device in self._devices.items()}
        known = [
            name
            for name, device in self._devices.items()
            if device.governor.last is not None and (self._counts is None or name in self._counts)
        ]
        return HeatView(
            devices=devices,
            thermal=worst(devices[name].state for name in known),
            factor=min((devices[name].factor for name in known), default=1.0),
            eases=self._eases({name: devices[name] for name in known}, now),
        )

    def _new(self, name: str, reading: Reading | None, now: float) -> _Device:
        """A device that is seen for the first time, or again: one that was critical when it was left, and
        still is at its threshold, need not prove it.
        """
        governor = Governor()
        if reading is not None and reading.known and name in self._suspects:
            self._suspects.discard(name)
            governor = Governor(over_since=now - self._rule.hold, last=now)
        return self._devices.setdefault(name, _Device(governor))

    def _step(self, name: str, device: _Device, reading: Reading | None, now: float) -> Change | None:
        before, speed = device.governor, self._speeds.measured(name, now)
        after = step(before, reading, now, speed, self._rule)
        device.governor = after
        if reading is not None and reading.known:
            device.alarms = reading.alarms
        in_s = trend.slowdown_in_s(after.trend) if reading is not None and device.alarms else None
        if in_s is not None and in_s <= AHEAD_S:
            device.rising_until = now + self._rule.dwell
        if after.state == before.state:
            return None
        return Change(name, before.state, after.state, words.why(after, reading, speed, self._rule))

    def _view(self, name: str, device: _Device, now: float) -> DeviceHeat:
        governor = device.governor
        slowed = governor.state in ("throttled", "critical")
        return DeviceHeat(
            state=governor.state,
            since=governor.since,
            signs=governor.signs.now,
            factor=self._speeds.factor(name, now) if slowed else 1.0,
            slowdown_in_s=trend.slowdown_in_s(governor.trend) if governor.blind_since is None else None,
            ends_in_s=ends_in_s(governor, now, self._rule),
            readable=governor.blind_since is None,
        )

    def _eases(self, devices: Mapping[str, DeviceHeat], now: float) -> str | None:
        states: dict[ThermalState, str] = {
            "critical": "the machine is critically hot",
            "throttled": "heat slows the machine",
        }
        for state, text in states.items():
            if any(device.state == state for device in devices.values()):
                return text
        until = [
            device.rising_until
            for name, device in self._devices.items()
            if name in devices and device.rising_until is not None and device.rising_until > now
        ]
        if until:
            return (
                f"the machine got hot so fast that it would have been at its limit within {duration(AHEAD_S)}"
            )
        return None
