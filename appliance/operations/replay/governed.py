"""The governor over a trace: heat, power source, and the time in each state. No clock but the trace's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import cast

from appliance.monitor.governor import Heat, HeatView, PowerSource, SpeedKey, power, speed_key
from appliance.monitor.governor import power_source as source_of
from appliance.monitor.governor.baseline import MINIMUM
from appliance.monitor.governor.power import Power
from appliance.monitor.snapshot import MonitorSnapshot, Pressure, pressure_on
from appliance.operations.replay.reading import SILENT_S
from appliance.operations.replay.under import Under
from appliance.operations.replay.values import Moved, Plugged, Sampled, Spoke, Usual
from appliance.units import duration

UNWATCHED = "not watched"
_FEW_STEPS = 1.5
"""Samples of a minute's means come every minute; a later one leaves a silence."""


class Governed:
    """What the governor knows at one moment of the trace."""

    def __init__(self, under: Under) -> None:
        self._under = under
        self._heat = Heat(under.rule)
        self._power = Power()
        self._eases: str | None = None
        self._sampled_at: float | None = None
        self._stands_s = SILENT_S
        self._states: dict[str, str] = {}
        self._recorded: dict[str, str] = {}
        self._keys: dict[str, SpeedKey] = {}
        self._places: dict[str, frozenset[str]] = {}
        self.moved: list[Moved] = []
        self.seconds: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        self.recorded_seconds: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))

    @property
    def source(self) -> PowerSource:
        return self._power.source

    def view(self, at: float) -> HeatView:
        return self._heat.view(at)

    def sample(self, at: float, samples: Iterable[Sampled]) -> None:
        """All devices that were sampled at this moment."""
        seen = {one.device: one for one in samples}
        self._pass(at)
        if self._sampled_at is not None and at - self._sampled_at > max(
            self._under.rule.dwell, self._stands_s
        ):
            self._forget(at)
        for change in self._heat.take({name: one.reading for name, one in seen.items()}, at):
            self.moved.append(Moved.of(at, change))
        self._states = {name: device.state for name, device in self.view(at).devices.items()}
        self._recorded = {name: one.state for name, one in seen.items() if one.state is not None}
        self._sampled_at = at
        self._stands_s = max(SILENT_S, *(one.step * _FEW_STEPS for one in seen.values()))
        self._ease(at)

    def speed(self, at: float, spoke: Spoke) -> None:
        """A reply told how fast the machine is."""
        key = self._key(spoke)
        self._keys[spoke.model] = key
        if spoke.places is not None:
            self._places[spoke.model] = self._places[spoke.model.partition(":")[0]] = spoke.places
        places = spoke.places if spoke.places is not None else frozenset(self._states)
        self._heat.observe(key, spoke.tokens_per_second, places, at)

    def places_of(self, model: str) -> frozenset[str] | None:
        """Where its last reply was made; None while no reply has told."""
        return self._places.get(model)

    def usual(self, usual: Usual) -> None:
        """What is known from earlier days."""
        key = self._key(usual)
        self._keys.setdefault(usual.model, key)
        self._heat.seed(key, [usual.tokens_per_second] * MINIMUM)

    def usual_speed(self, model: str) -> float | None:
        """Tokens per second of this model when well; None while unknown."""
        key = self._keys.get(model)
        baseline = None if key is None else self._heat.baseline(key)
        return None if baseline is None else baseline.tokens_per_second

    def plug(self, at: float, plugged: Plugged) -> None:
        """A look at the battery."""
        self._feed(source_of(plugged.plugged), at)

    def pass_time(self, at: float) -> None:
        """What a battery line said stands until the next one: another source counts after the hold."""
        other, since = self._power.other, self._power.since
        if other is not None and since + self._under.rule.hold <= at:
            self._feed(other, since + self._under.rule.hold)

    def _feed(self, source: PowerSource, at: float) -> None:
        before = self._power
        self._power = power.step(before, source, at, self._under.rule.hold)
        if self._power.source != before.source:
            known = before.source != "unknown"
            why = f"seen for {duration(self._under.rule.hold)}" if known else "the first look that could tell"
            self.moved.append(Moved(at, "power", before.source, self._power.source, why))

    def end(self, at: float) -> None:
        """The trace is over."""
        self._pass(at)

    def _key(self, of: Spoke | Usual) -> SpeedKey:
        source = cast("PowerSource", of.power or self.source)
        return speed_key(of.model, of.plan, source, streams=of.streams, tokens=of.tokens)

    def _pass(self, at: float) -> None:
        """The time since the last samples, counted to the states of then."""
        if self._sampled_at is None or at <= self._sampled_at:
            return
        gone = at - self._sampled_at
        for states, seconds in ((self._states, self.seconds), (self._recorded, self.recorded_seconds)):
            for device, state in states.items():
                seconds[device][state if gone <= self._stands_s else UNWATCHED] += gone

    def _forget(self, at: float) -> None:
        """As the monitor does when no engine is loaded for that long: old heat does not count."""
        self._heat.forget()
        why = "no samples for longer than the dwell: what was known of its heat is forgotten"
        for device, state in self._states.items():
            if state != "unknown":
                self.moved.append(Moved(at, device, state, "unknown", why))

    def _ease(self, at: float) -> None:
        eases = self.view(at).eases
        if (eases is None) != (self._eases is None):
            before, after = ("goes on", "waits") if eases is not None else ("waits", "goes on")
            self.moved.append(Moved(at, "batch work", before, after, eases or "the heat is over"))
        self._eases = eases


def heat_at(view: HeatView, places: frozenset[str] | None) -> Pressure:
    """What counts for a model on these places; None: it may be on all of them."""
    seen = MonitorSnapshot(devices=view.devices, thermal=view.thermal, factor=view.factor)
    return pressure_on(seen, places or ())
