"""What stands on the timeline: samples, events, decisions and requests, and each as a line of JSON.

One line is one object. What is unknown may be left out or null; both read the same.

    {"at": 1767225600.0, "kind": "sample", "device": "gpu:GPU-5f..", "step": 1, "state": "cool",
     "temperature": 61.0, "headroom": 32.0, "reasons": 4, "slowed_ns": 0, "factor": 1.0, ...}
    {"at": ..., "kind": "event", "event": "thermal", "ref": "gpu:GPU-5f..", "text": "...", "number": 7}
    {"at": ..., "kind": "decision", "request_id": "req_..", "moment": "first", "model": "qwen3-8b",
     "target": "local", "reason": "local.ok", "detail": "...", "remote": null,
     "features": {...}, "view": {...}, "given": {}}
    {"at": ..., "kind": "request", "request_id": "req_..", "served_model": "qwen3-8b:Q4_K_M",
     "route": "local", "tokens_per_second": 31.0, "thermal": "cool", "power": "ac", "streams": 1,
     "plan": "b10434/37/f16", "places": ["GPU-5f.."], ...}

A sample has the fields of `Point` but its name, a decision those of `Decided`, an event those of `Event` (its
kind is called `event` there), a request those of `Row` without `started_at` (it is `at`) and without the
caller's program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from appliance.journal.events import Event
from appliance.journal.rows import Row

Moment = Literal["first", "waited", "refused", "failed"]
"""When it was decided: on arrival; again after waiting; after the engine said that the prompt is longer than
was thought (`features` has its length); after a side failed."""
MACHINE, CPU, GPU = "machine", "cpu", "gpu:"
"""Names of devices; a GPU's is `gpu:` and its id."""
STATES = ("cool", "unknown", "warm", "throttled", "critical")
"""From the least to the worst."""


@dataclass(frozen=True, slots=True)
class Point:
    """What was seen of one device at one moment, or in one minute. None is unknown, never zero."""

    at: float
    """Unix seconds; of a minute, its beginning."""
    device: str
    """`gpu:<id>`, `cpu` or `machine`."""
    step: int = 1
    """1: as it was seen. 60: the means of the known values of a minute (of `state` the worst, of `reasons`
    all bits, of `slowed_ns` and `plugged` the last)."""
    name: str | None = None
    """The device's, for people; not in its line."""
    state: str | None = None
    """One of `STATES`; of the machine, the worst of all devices that tell anything about heat."""
    temperature: float | None = None
    memory_temperature: float | None = None
    headroom: float | None = None
    margin: float | None = None
    critical_at: float | None = None
    """Of a CPU: the temperature of danger. Its `headroom` is to where it only begins to slow down."""
    reasons: int | None = None
    slowed_ns: int | None = None
    """The counters that mean heat, summed."""
    power: float | None = None
    power_limit: float | None = None
    clock: float | None = None
    utilisation: float | None = None
    fan: float | None = None
    total: int | None = None
    free: int | None = None
    used_by_engine: int | None = None
    factor: float | None = None
    cpu_percent: float | None = None
    """From here on of the machine alone."""
    ram_available: int | None = None
    swap_used: int | None = None
    battery_percent: float | None = None
    plugged: bool | None = None
    running: float | None = None
    """Requests inside engines."""
    waiting: float | None = None
    tokens_per_second: float | None = None
    """Of all engines together."""

    @property
    def place(self) -> str | None:
        """The device as the governor calls it: a GPU's id, or `cpu`; None for the machine."""
        if self.device == CPU:
            return CPU
        return self.device.removeprefix(GPU) if self.device.startswith(GPU) else None


@dataclass(frozen=True, slots=True)
class Decided:
    """One decision of the router, with all that it was made from. No text of a request is in it."""

    at: float
    request_id: str
    moment: Moment
    model: str
    """The catalog's name."""
    target: str
    reason: str
    detail: str
    """The router's sentence, without the words of a side that failed."""
    remote: str | None = None
    features: Mapping[str, Any] = field(default_factory=dict)
    """The fields of `routing.Features`."""
    view: Mapping[str, Any] = field(default_factory=dict)
    """The fields of `routing.View`, `local` and `remotes` included; empty where it was too large to keep."""
    given: Mapping[str, Any] = field(default_factory=dict)
    """What else it was told: `waited_s` (moment `waited`); `failed`, a side, and `remote` (`failed`)."""


Entry = Point | Event | Decided | Row
COLUMNS = tuple(f.name for f in fields(Point) if f.name not in ("at", "device", "step", "name", "state"))
"""The figures of a point."""
WHOLE = frozenset({"reasons", "slowed_ns", "total", "free", "used_by_engine", "ram_available", "swap_used"})
"""Those that are whole numbers."""


def moment_of(entry: Entry) -> float:
    """When it was, in Unix seconds; of a request, when it arrived."""
    return entry.started_at if isinstance(entry, Row) else entry.at


def to_line(entry: Entry) -> dict[str, Any]:
    """The object of its line; what is unknown is left out."""
    if isinstance(entry, Row):
        found = entry.to_json() | {"places": entry.places.split(",") if entry.places else None}
        kind, left = "request", frozenset({"started_at", "client"})
    elif isinstance(entry, Event):
        found = entry.to_json() | {"event": entry.kind}
        kind, left = "event", frozenset({"at", "kind"})
    else:
        found = {f.name: getattr(entry, f.name) for f in fields(entry)}
        kind, left = ("sample" if isinstance(entry, Point) else "decision"), frozenset({"at", "name"})
    known = {name: value for name, value in found.items() if value is not None and name not in left}
    return {"at": moment_of(entry), "kind": kind} | known
