"""The rows of the status document. None means unknown; sizes are bytes, durations as their name says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from appliance.client.fields import Document, mapping, maybe, rows, text, whole


@dataclass(frozen=True, slots=True)
class DaemonRow(Document):
    """The process that answers; `started` is Unix time."""

    pid: int | None
    version: str | None
    url: str | None
    started: float | None


@dataclass(frozen=True, slots=True)
class ModelRow(Document):
    """The model being served (or last asked for)."""

    ref: str
    name: str | None
    quant: str | None
    size: int | None


@dataclass(frozen=True, slots=True)
class TotalsRow(Document):
    """Bytes of one GPU by two sources that disagree; `build` is the engine that says the second."""

    driver: int | None
    engine: int | None
    build: str | None


@dataclass(frozen=True, slots=True)
class GpuRow(Document):
    """One GPU. Degrees Celsius, watts, percent; `age_s` is the age of the sample.

    `reasons` say why its clocks are lowered: empty when they are not, None when that can't be read.
    """

    READERS: ClassVar[Mapping[str, Callable[[object], object]]] = {"disagrees": maybe(TotalsRow)}

    id: str
    name: str | None
    backend: str | None
    total: int | None
    free: int | None
    used_by_engine: int | None
    temperature: float | None
    slowdown_at: float | None
    reasons: tuple[str, ...] | None
    power: float | None
    power_limit: float | None
    utilisation: float | None
    state: str | None
    age_s: float | None
    used: int | None
    memory_source: str | None
    """`driver`, `ram` (it shares the machine's) or `engine`."""
    memory_temperature: float | None
    headroom: float | None
    clock: float | None
    """MHz."""
    clock_max: float | None
    fan: float | None
    fan_rpm: float | None
    asleep: bool | None
    trouble: str | None
    """Why it can't be read, such as `gpu_lost`."""
    factor: float | None
    slowdown_in_s: float | None
    """Until the threshold, at the rate of now."""
    watched: bool | None
    """False: no engine uses it, so it is not looked at."""
    disagrees: TotalsRow | None
    """What driver and engine say of its memory, where that does not fit."""


@dataclass(frozen=True, slots=True)
class CpuRow(Document):
    """The CPU package; `high_at` is where it begins to slow down."""

    name: str | None
    temperature: float | None
    high_at: float | None
    critical_at: float | None
    clock: float | None
    clock_max: float | None
    state: str | None
    factor: float | None
    age_s: float | None


@dataclass(frozen=True, slots=True)
class BatteryRow(Document):
    """A battery; `plugged`: the machine is on mains."""

    percent: float | None
    plugged: bool | None


def _lanes(value: object) -> Mapping[str, int]:
    """Waiting requests per lane; a lane may be a number or an object with `waiting`."""
    counts = {
        text(name) or "": whole(mapping(lane).get("waiting") if isinstance(lane, dict) else lane)
        for name, lane in mapping(value).items()
    }
    return {name: count for name, count in counts.items() if count is not None}


@dataclass(frozen=True, slots=True)
class QueueRow(Document):
    """The admission queue; `predicted_wait` in seconds, for a request that came now."""

    READERS: ClassVar[Mapping[str, Callable[[object], object]]] = {"lanes": _lanes}

    waiting: int | None
    running: int | None
    lanes: Mapping[str, int]
    predicted_wait: float | None


@dataclass(frozen=True, slots=True)
class RemoteRow(Document):
    """A remote endpoint as last probed; `state` is up, down or unknown."""

    name: str
    kind: str | None
    url: str | None
    state: str
    latency_ms: float | None
    waiting: int | None
    running: int | None
    version: str | None
    error: str | None
    breaker: str | None


@dataclass(frozen=True, slots=True)
class TodayRow(Document):
    """Requests since midnight, by where they were answered."""

    local: int | None
    remote: int | None
    errors: int | None


@dataclass(frozen=True, slots=True)
class NoteRow(Document):
    """Something about the machine that the user should know; `since` is Unix time."""

    code: str
    since: float | None
    detail: str | None
    todo: str | None


@dataclass(frozen=True, slots=True)
class HostRow(Document):
    """The computer; bytes and percent."""

    READERS: ClassVar[Mapping[str, Callable[[object], object]]] = {"battery": maybe(BatteryRow)}

    ram_total: int | None
    ram_available: int | None
    cpu_percent: float | None
    disk_free: int | None
    swap_total: int | None
    swap_used: int | None
    battery: BatteryRow | None


def _codes(value: object) -> tuple[str, ...]:
    """Degradation codes, written as a list or as one comma-separated text."""
    parts = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else []
    return tuple(code for code in map(text, parts) if code)


@dataclass(frozen=True, slots=True)
class RequestRow(Document):
    """One request as the journal keeps it; running ones have no status yet."""

    READERS: ClassVar[Mapping[str, Callable[[object], object]]] = {"degraded": _codes}

    request_id: str
    started_at: float | None
    model: str | None
    served_model: str | None
    route: str | None
    reason: str | None
    lane: str | None
    path: str | None
    status: int | None
    tokens_in: int | None
    tokens_out: int | None
    queue_ms: float | None
    ttft_ms: float | None
    tokens_per_second: float | None
    total_ms: float | None
    degraded: tuple[str, ...]
    client: str | None


@dataclass(frozen=True, slots=True)
class ReasonRow(Document):
    """One line of "why this plan"."""

    code: str
    text: str
    n_bytes: int | None


@dataclass(frozen=True, slots=True)
class DeviceRow(Document):
    """What a plan puts on one device, in bytes."""

    name: str
    total: int | None
    free: int | None
    reserve: int | None
    model: int | None
    kv: int | None
    compute: int | None
    overhead: int | None
    spare: int | None


def _reasons(value: object) -> tuple[ReasonRow, ...]:
    items = value if isinstance(value, list) else []
    lines = [{"text": item} if isinstance(item, str) else item for item in items]
    return tuple(ReasonRow.parse(line) for line in lines if isinstance(line, dict))


@dataclass(frozen=True, slots=True)
class PlanDocument(Document):
    """The `plan --json` document. `gpu_layers` counts like llama.cpp: `n_layer + 1` is all of them."""

    READERS: ClassVar[Mapping[str, Callable[[object], object]]] = {
        "flash_attn": lambda value: str(value) if isinstance(value, bool) else text(value),
        "devices": rows(DeviceRow),
        "host": maybe(DeviceRow),
        "reasons": _reasons,
    }

    model: str | None
    arch: str | None
    engine_build: str | None
    n_layer: int | None
    gpu_layers: int | None
    ctx: int | None
    parallel: int | None
    kv_type: str | None
    flash_attn: str | None
    n_ubatch: int | None
    threads: int | None
    devices: tuple[DeviceRow, ...]
    host: DeviceRow | None
    fits: bool | None
    measured: bool | None
    reasons: tuple[ReasonRow, ...]
    flags: tuple[str, ...]
