"""The models that the daemon holds, as rows of the status document. None means unknown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from appliance.client.fields import Document, maybe, rows


@dataclass(frozen=True, slots=True)
class UsedDevice(Document):
    """A device that an engine uses, as it lists it; `software`: made of the CPU, no GPU."""

    name: str
    description: str | None
    software: bool | None


@dataclass(frozen=True, slots=True)
class CrashRow(Document):
    """How an engine ended last that nobody had asked to end: what, why, what to do; `at` is Unix time."""

    at: float | None
    message: str | None
    cause: str | None
    hint: str | None


@dataclass(frozen=True, slots=True)
class AdapterRow(Document):
    """A LoRA adapter that changes what the model answers."""

    name: str | None
    scale: float | None


@dataclass(frozen=True, slots=True)
class EngineRow(Document):
    """One model of the pool and its engine. `gpu_layers` and `ctx` (tokens per request) are read back.

    `state` is absent, starting, loading, ready, busy, stopping or failed; `load_progress` runs from 0 to 1.
    `error` says what happened, `cause` why, `hint` what to do next. `crash` is the last one, also when the
    engine is back.

    `default`: requests that name no model go to it. `wanted` are requests that want it now, those inside the
    engine included, `waiting` those of them that wait for a slot. `makes_way`: it takes no new request, since
    another model is wanted. `last_used` and `unload_at` (None: it stays) are Unix times, `load_s` is how long
    the last load took, `load_estimate_s` how long the one under way takes; `load_estimate_how` is `seen`,
    `computed` or `rough`. `load_bytes_per_s` is what the last load got from its disk (None: all was in RAM),
    `disk_bytes_per_s` what the disk gives.
    """

    READERS: ClassVar[Mapping[str, Callable[[object], object]]] = {
        "devices": rows(UsedDevice),
        "crash": maybe(CrashRow),
        "adapters": rows(AdapterRow),
    }

    id: str
    model: str | None
    kind: str | None
    build: str | None
    pid: int | None
    state: str
    gpu_layers: int | None
    n_layer: int | None
    ctx: int | None
    parallel: int | None
    slots_busy: int | None
    tokens_per_second: float | None
    prefill_per_second: float | None
    restarts: int | None
    started_at: float | None
    ready_at: float | None
    error: str | None
    cause: str | None
    hint: str | None
    last_lines: tuple[str, ...]
    load_progress: float | None
    devices: tuple[UsedDevice, ...]
    default: bool | None
    pinned: bool | None
    waiting: int | None
    wanted: int | None
    makes_way: bool | None
    last_used: float | None
    unload_at: float | None
    load_s: float | None
    load_estimate_s: float | None
    load_estimate_how: str | None
    load_bytes_per_s: float | None
    disk_bytes_per_s: float | None
    crash: CrashRow | None
    adapters: tuple[AdapterRow, ...]

    @property
    def ref(self) -> str:
        """The model; the engine's own name where a daemon tells no model."""
        return self.model or self.id

    @property
    def serves(self) -> bool:
        """It can answer now."""
        return self.state in ("ready", "busy")

    @property
    def resident(self) -> bool:
        """Its memory is taken, or is being taken or freed."""
        return self.serves or self.state in ("starting", "loading", "stopping")

    @property
    def on_cpu(self) -> bool:
        """No layer is on any device, as the engine says."""
        return self.gpu_layers is not None and self.gpu_layers <= 0

    @property
    def software(self) -> bool:
        """Its devices are made of the CPU: no GPU does anything for it."""
        return bool(self.devices) and all(device.software for device in self.devices)

    @property
    def running(self) -> int | None:
        """Requests inside the engine, which a stop would cut off."""
        if self.wanted is None:
            return self.slots_busy
        return max(0, self.wanted - (self.waiting or 0)) if self.serves or self.state == "stopping" else 0

    @property
    def queued(self) -> int | None:
        """Requests that wait: for a slot, or for the load."""
        return self.waiting if self.serves or self.wanted is None else max(self.wanted, self.waiting or 0)
