"""The values that go into a plan and come out of it. Sizes are bytes; None means unknown."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from appliance.units import MIB

Profile = Literal["chat", "docs", "batch"]
FlashAttention = Literal["on", "auto"]
KV_TYPES = ("f16", "q8_0", "q4_0")
"""From the largest to the smallest; what the search may go down."""


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """One device as the engine lists it."""

    name: str
    """The engine's name, such as `Vulkan0`."""
    description: str
    backend: str
    """`cuda`, `rocm`, `metal`, `vulkan` or another in small letters."""
    total: int | None
    free: int | None
    software: bool = False
    """Made of the CPU (llvmpipe): never used unless layers were asked for."""
    integrated: bool | None = None
    max_tensor: int | None = None
    """The largest tensor the device takes; larger ones stay in RAM."""


@dataclass(frozen=True, slots=True)
class HostMemory:
    """RAM and cores."""

    total: int | None
    available: int | None
    threads: int | None = None


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What was asked for. None = auto, and only what is auto is ever changed."""

    ctx: int | None = None
    """Tokens per request."""
    parallel: int | None = None
    gpu_layers: int | None = None
    """Counted like llama.cpp: `n_layer + 1` = all, output head included. More, or a negative one, = all."""
    kv_type: str | None = None
    reserve: int = 512 * MIB
    kv_floor: str = "q8_0"
    profile: Profile = "chat"
    embedding: bool = False


@dataclass(frozen=True, slots=True)
class Reason:
    """One line of why. `n_bytes` is the exact figure behind the text, where there is one."""

    code: str
    text: str
    n_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Where the memory of one device goes. `free - reserve - model - kv - compute - overhead = spare`."""

    name: str
    total: int | None
    free: int | None
    reserve: int
    model: int
    kv: int
    """KV cache and recurrent state."""
    compute: int
    overhead: int
    """What the driver takes beside the engine's buffers."""
    spare: int | None
    """Negative: so much is missing. None: free memory is unknown."""

    @property
    def needed(self) -> int:
        """Bytes that the engine and its driver take."""
        return self.model + self.kv + self.compute + self.overhead


@dataclass(frozen=True, slots=True)
class Plan:
    """How to start the engine, what that takes, and why."""

    model: str
    arch: str
    engine_build: str
    n_layer: int
    gpu_layers: int
    ctx: int
    """Tokens per request (per slot)."""
    parallel: int
    kv_type: str
    flash_attn: FlashAttention
    n_ubatch: int
    threads: int | None
    devices: tuple[MemoryPlan, ...]
    """The devices that the engine uses; empty when it runs on the CPU alone."""
    host: MemoryPlan
    fits: bool
    measured: bool
    """True: the engine itself gave the figures."""
    reasons: tuple[Reason, ...]
    flags: tuple[str, ...]
    """llama-server arguments; the model file and the address are not in them."""
    shared: tuple[str, ...] = ()
    """Devices whose memory is the machine's RAM, so that it counts there, too."""

    def to_json(self) -> dict[str, Any]:
        """The document of `plan --json`."""
        return {
            "model": self.model,
            "arch": self.arch,
            "engine_build": self.engine_build,
            "n_layer": self.n_layer,
            "gpu_layers": self.gpu_layers,
            "ctx": self.ctx,
            "parallel": self.parallel,
            "kv_type": self.kv_type,
            "flash_attn": self.flash_attn,
            "devices": [asdict(device) for device in self.devices],
            "host": asdict(self.host),
            "fits": self.fits,
            "measured": self.measured,
            "reasons": [asdict(reason) for reason in self.reasons],
            "flags": list(self.flags),
        }


@dataclass(frozen=True, slots=True)
class MeasuredRow:
    """One row of the engine's memory table, in bytes. `context` is KV cache and recurrent state."""

    model: int
    context: int
    compute: int
