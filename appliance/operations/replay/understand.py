"""One line -> the step that it is. Recorded lines and written ones are read by the same functions."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any, Literal, cast, get_args

from appliance.hardware.sensors import REASONS
from appliance.monitor.governor.values import CPU, Reading, ThermalState
from appliance.operations.replay import typed
from appliance.operations.replay.fields import BadLine, Fields
from appliance.operations.replay.values import (
    Asked,
    Ended,
    Happened,
    Model,
    Moment,
    Plugged,
    Remote,
    Sampled,
    Spoke,
    Taken,
    Usual,
    What,
)
from appliance.routing import Features, Kind, Lane, Wish

MACHINE, GPU = "machine", "gpu:"
SHORTEST_SPEED = 8
"""Tokens; a shorter reply says nothing about decode speed."""
_REASON_BITS = {name.lower(): bit for bit, name in REASONS.items()}
_SEEN = (
    "name", "memory_temperature", "power", "power_limit", "clock", "utilisation", "fan", "total", "free",
    "used_by_engine", "factor", "cpu_percent", "ram_available", "swap_used", "battery_percent", "running",
    "waiting", "tokens_per_second",
)  # fmt: skip
"""Of a recorded sample; the governor makes nothing of them."""
_SOURCES = ("ac", "battery", "unknown")
Delayed = tuple[float, What]
"""Seconds after the line's own moment, and what is then."""


def understand(raw: Mapping[str, Any], where: int) -> tuple[Delayed, ...]:
    """What a line says, without its `at`. `where`: its number, which names a request. Raises BadLine."""
    fields = Fields(raw)
    kind = fields.text("kind")
    if kind is None:
        raise BadLine("`kind` is missing", f"Add one of: {', '.join(_KINDS)}.")
    reader = _KINDS.get(kind)
    if reader is None:
        close = difflib.get_close_matches(kind, _KINDS, 1)
        instead = f"Did you mean `{close[0]}`?" if close else f"Write one of: {', '.join(_KINDS)}."
        raise BadLine(f"the kind {kind!r} is unknown", instead)
    return reader(fields, where)


def place(device: str) -> str:
    """The device as the governor calls it: a GPU's id, or `cpu`."""
    return device.removeprefix(GPU) or device


def _sample(fields: Fields, where: int) -> tuple[Delayed, ...]:
    device = fields.needed_text("device", "gpu")
    step = fields.whole("step", 1) or 1
    if device == MACHINE:
        plugged = fields.flag("plugged")
        fields.all_read((*_SEEN, "state"))
        return ((0.0, Plugged(plugged)),) if plugged is not None else ()
    temperature, headroom = fields.number("temperature", -100, 250), fields.number("headroom", -250, 250)
    slowdown_at = fields.number("slowdown_at", 0, 250)
    if headroom is None and temperature is not None and slowdown_at is not None:
        headroom = slowdown_at - temperature
    alarms, critical_at = place(device) != CPU, fields.number("critical_at", 0, 250)
    if not alarms and temperature is not None and critical_at is not None and temperature >= critical_at:
        headroom, alarms = critical_at - temperature, True  # a CPU is in danger only there
    margin, reasons = fields.number("margin", -250, 250), _reasons(fields)
    reading = Reading(headroom, margin, reasons, fields.whole("slowed_ns"), alarms)
    state = fields.one_of("state", get_args(ThermalState))
    fields.all_read((*_SEEN, "plugged"))
    return ((0.0, Sampled(place(device), reading, state, step)),)


def _reasons(fields: Fields) -> int | None:
    """The clock event reasons: a mask, or a list of their names."""
    value = fields.get("reasons")
    if not isinstance(value, list):
        return fields.whole("reasons")
    mask = 0
    for name in fields.texts("reasons") or ():
        if name.lower() not in _REASON_BITS:
            close = difflib.get_close_matches(name.lower(), _REASON_BITS, 1)
            known = ", ".join(REASONS.values())
            wrong = f"the reason {name!r} is unknown"
            instead = f"Did you mean `{REASONS[_REASON_BITS[close[0]]]}`?" if close else f"Known: {known}."
            raise BadLine(wrong, instead)
        mask |= _REASON_BITS[name.lower()]
    return mask


def _speed(fields: Fields, where: int) -> tuple[Delayed, ...]:
    found = Spoke(
        model=fields.text("model") or "model",
        plan=fields.text("plan") or "",
        tokens_per_second=fields.needed("tokens_per_second", 0),
        streams=fields.whole("streams", 1) or 1,
        tokens=fields.whole("tokens", 1) or 500,
        power=fields.one_of("power", _SOURCES),
        places=_places(fields),
    )
    fields.all_read()
    return ((0.0, found),)


def _usual(fields: Fields, where: int) -> tuple[Delayed, ...]:
    found = Usual(
        model=fields.text("model") or "model",
        plan=fields.text("plan") or "",
        tokens_per_second=fields.needed("tokens_per_second", 0.001),
        streams=fields.whole("streams", 1) or 1,
        tokens=fields.whole("tokens", 1) or 500,
        power=fields.one_of("power", _SOURCES),
    )
    fields.all_read()
    return ((0.0, found),)


def _places(fields: Fields) -> frozenset[str] | None:
    named = fields.texts("places")
    return None if named is None else frozenset(place(one) for one in named)


def _request(fields: Fields, where: int) -> tuple[Delayed, ...]:
    """A recorded row has a status or a route; a written one is a wish."""
    if fields.get("status") is not None or fields.get("route") is not None:
        return _row(fields)
    features = Features(
        model=fields.text("model") or "model",
        wish=cast("Wish", fields.one_of("wish", get_args(Wish)) or "auto"),
        lane=cast("Lane", fields.one_of("lane", get_args(Lane)) or "interactive"),
        kind=cast("Kind", fields.one_of("asks", get_args(Kind)) or "chat"),
        prompt_tokens=fields.whole("prompt_tokens"),
        max_tokens=fields.whole("max_tokens"),
        keyless_unknown_user=fields.flag("keyless_unknown_user") or False,
        local_fields=fields.texts("local_fields") or (),
    )
    name, before = fields.text("request_id") or f"line {where}", fields.text("reason")
    fields.all_read()
    return ((0.0, Asked(features, name, before)),)


def _row(fields: Fields) -> tuple[Delayed, ...]:
    """A request that was answered. Its speed is known when it is over."""
    speed, took = fields.number("tokens_per_second", 0), (fields.number("total_ms", 0) or 0.0) / 1000
    tokens_in, tokens_out = fields.whole("tokens_in") or 0, fields.whole("tokens_out") or 0
    plan, status = fields.text("plan"), fields.whole("status") or 200
    model = fields.text("served_model") or fields.text("model") or "model"
    power = fields.one_of("power", _SOURCES)
    streams = fields.whole("streams", 1) or 1
    counts = fields.text("route") == "local" and status < 400 and tokens_out >= SHORTEST_SPEED
    if not counts or speed is None or plan is None:
        return ((took, Ended()),)
    # A row without a source was made while it was unknown: the lines about it must not stand in.
    return ((took, Spoke(model, plan, speed, streams, tokens_in + tokens_out, power or "unknown")),)


def _decision(fields: Fields, where: int) -> tuple[Delayed, ...]:
    of, seen, given = fields.part("features"), fields.part("view"), fields.part("given")
    if of is None:
        raise BadLine("`features` is missing", 'Write a line of the kind "request" instead: it needs none.')
    asked = typed.features(of)
    made = Taken(
        request_id=fields.text("request_id") or f"line {where}",
        moment=cast("Moment", fields.one_of("moment", get_args(Moment)) or "first"),
        features=asked,
        view=typed.view(seen) if seen is not None and seen.filled else None,
        reason=fields.needed_text("reason", "local.ok"),
        detail=fields.words("detail") or "",
        given=_given(given) if given is not None else {},
    )
    return ((0.0, made),)


def _given(fields: Fields) -> Mapping[str, Any]:
    found = {
        "waited_s": fields.number("waited_s", 0),
        "failed": fields.one_of("failed", ("local", "remote")),
        "remote": fields.text("remote"),
    }
    return {name: value for name, value in found.items() if value is not None}


def _battery(fields: Fields, where: int) -> tuple[Delayed, ...]:
    plugged = fields.flag("plugged")
    fields.number("percent", 0, 100)
    fields.all_read()
    return ((0.0, Plugged(plugged)),)


def _remote(fields: Fields, where: int) -> tuple[Delayed, ...]:
    up, models = fields.flag("up"), fields.texts("models")
    found = Remote(
        name=fields.text("name") or "remote",
        up=True if up is None else up,
        models=None if models is None else frozenset(models),
        max_model_len=fields.whole("max_model_len", 1),
        ttft_s=fields.number("ttft_s", 0),
        finish_s=fields.number("finish_s", 0),
    )
    fields.all_read()
    return ((0.0, found),)


_STATES = Literal["ready", "busy", "cold", "loading", "starting", "stopping", "failed", "absent"]


def _model(fields: Fields, where: int) -> tuple[Delayed, ...]:
    found = Model(
        model=fields.text("model") or "model",
        state=fields.one_of("state", get_args(_STATES)) or "ready",
        slots=fields.whole("slots", 1) or 1,
        running=fields.whole("running") or 0,
        waiting=fields.whole("waiting") or 0,
        ctx=fields.whole("ctx", 1),
        predicted_wait_s=fields.number("predicted_wait_s", 0),
        prefill_per_s=fields.number("prefill_per_s", 0.001),
        decode_per_s=fields.number("decode_per_s", 0.001),
        load_s=fields.number("load_s", 0),
        places=_places(fields),
    )
    fields.all_read()
    return ((0.0, found),)


def _event(fields: Fields, where: int) -> tuple[Delayed, ...]:
    return ((0.0, Happened(fields.needed_text("event", "loaded"), fields.words("text") or "")),)


_KINDS: Mapping[str, Callable[[Fields, int], tuple[Delayed, ...]]] = {
    "sample": _sample,
    "speed": _speed,
    "usual": _usual,
    "request": _request,
    "battery": _battery,
    "remote": _remote,
    "model": _model,
    "event": _event,
    "decision": _decision,
}
