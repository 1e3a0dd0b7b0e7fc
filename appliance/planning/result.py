"""The values that come out of a plan. Sizes are bytes; None means unknown."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from appliance.planning.speed.reads import Read
from appliance.planning.values import Split

FlashAttention = Literal["on", "off", "auto"]
How = Literal["measured", "computed"]
OverheadHow = Literal["typical", "learned"]
BandwidthHow = Literal["seen", "table", "rule"]
N_BATCH = 2_048
"""Stays large: long prompts are fed in pieces so that they do not stop others; a small batch costs speed."""


@dataclass(frozen=True, slots=True)
class Reason:
    """One line of why. `n_bytes` is the exact figure behind the text, where there is one."""

    code: str
    text: str
    n_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Beside:
    """What projector and draft model take of a place; the engine's own table does not tell."""

    model: int = 0
    kv: int = 0
    compute: int = 0


@dataclass(frozen=True, slots=True)
class Applied:
    """A LoRA adapter that changes the model."""

    name: str
    scale: float
    sha256: str | None
    n_bytes: int


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
    how: How = "computed"
    """Of model, KV and compute: the engine's own figures, or the planner's formulas."""
    overhead_how: OverheadHow = "typical"
    ours: int = 0
    """Bytes of `free` that the model served now still holds."""
    beside: Beside = Beside()
    """Computed, and contained in model, KV and compute."""
    computed_compute: int | None = None
    """The formula's own figure for `compute`, before anything measured or learned took its place: what a
    load is compared with. None: not kept, and the load teaches nothing about it."""

    @property
    def needed(self) -> int:
        """Bytes that the engine and its driver take."""
        return self.model + self.kv + self.compute + self.overhead


@dataclass(frozen=True, slots=True)
class Speed:
    """Decode speed of one request, in tokens per second: an estimate until it was seen here."""

    decode: float
    """With an empty context."""
    decode_full: float
    """With the whole context of the request filled."""
    how: BandwidthHow
    """Where the memory bandwidth comes from: speeds seen here, data sheets, a rule of thumb."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How to start the engine, what that takes, and why."""

    model: str
    arch: str
    engine_build: str | None
    """None: for a described machine; no engine was asked."""
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
    n_batch: int = N_BATCH
    threads_batch: int | None = None
    """Threads for prompts, where that is another number; None: `threads`."""
    cache_reuse: int = 0
    """Tokens of a chunk that is moved within the cache instead of being worked on again; 0: none is."""
    cpu_moe: int = 0
    """So many of the first blocks keep their experts in RAM."""
    split: Split = "layer"
    tensor_split: tuple[int, ...] = ()
    """Layers on each device; empty with one device."""
    mmproj: Literal["gpu", "cpu"] | None = None
    """Where the projector for pictures goes; None: there is none."""
    draft: Literal["gpu", "cpu"] | None = None
    """Where the draft model goes; None: there is none, or it was given up."""
    adapters: tuple[Applied, ...] = ()
    speed: Speed | None = None
    """None: no bandwidth is known."""
    given_up: tuple[str, ...] = ()
    """Degradation codes of what a load that ran out of memory made smaller than first planned."""
    reads: tuple[Read, ...] = ()
    """What a token reads of each of `devices` and, last, of RAM, with an empty context; empty: not known."""
    reads_full: tuple[Read, ...] = ()
    """The same with the whole context of the request filled."""

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
            "n_batch": self.n_batch,
            "n_ubatch": self.n_ubatch,
            "threads": self.threads,
            "threads_batch": self.threads_batch,
            "cache_reuse": self.cache_reuse,
            "cpu_moe": self.cpu_moe,
            "split": self.split,
            "tensor_split": list(self.tensor_split),
            "mmproj": self.mmproj,
            "draft": self.draft,
            "adapters": [asdict(adapter) for adapter in self.adapters],
            "devices": [asdict(device) for device in self.devices],
            "host": asdict(self.host),
            "fits": self.fits,
            "measured": self.measured,
            "speed": None if self.speed is None else asdict(self.speed),
            "given_up": list(self.given_up),
            "reasons": [asdict(reason) for reason in self.reasons],
            "flags": list(self.flags),
        }
