"""The values that go into a plan. Sizes are bytes; None means unknown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from appliance.units import MIB

Profile = Literal["chat", "docs", "batch"]
Split = Literal["layer", "row", "tensor"]
"""How several GPUs share the model: whole layers each, or a part of every matrix each."""
Pooling = Literal["mean", "cls", "last"]
"""How the vectors of a text's tokens become one: their mean, that of the first one, that of the last one."""
KV_TYPES = ("f16", "q8_0", "q4_0")
"""From the largest to the smallest; what the search may go down."""
HOST = "Host"
"""The name of RAM among the places."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A program that holds memory of a device now."""

    name: str
    """Its name for people, such as `firefox`."""
    pid: int | None
    n_bytes: int | None
    """None: the driver does not tell (WDDM, WSL)."""


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
    bandwidth: float | None = None
    """Bytes per second that a token's weights are read with: what a data sheet says, or what was seen."""
    bandwidth_seen: bool = False
    """True: the bandwidth follows from speeds measured here; nothing is taken off it any more."""
    held: tuple[Holder, ...] = ()
    """Other programs that hold memory there, the largest first."""
    ours: int = 0
    """Bytes of `free` that the engine running now holds: it goes when another model is loaded."""
    apart: int = 0
    """Bytes of an integrated device that are no RAM: set aside at boot, and in no figure of the host."""
    pci: str | None = None
    """`0000:01:00.0` where Vulkan or the engine tells: which of several equal cards it is."""


@dataclass(frozen=True, slots=True)
class HostMemory:
    """RAM and cores."""

    total: int | None
    available: int | None
    threads: int | None = None
    bandwidth: float | None = None
    """As of a device."""
    bandwidth_seen: bool = False
    ours: int = 0
    """As of a device."""


@dataclass(frozen=True, slots=True)
class Learned:
    """What earlier loads of this model with this engine taught about one device (or `Host`)."""

    full: float | None = None
    """Real over computed compute buffer with the whole model on GPUs."""
    partial: float | None = None
    """The same with a part of it in RAM."""
    overhead: int | None = None
    """Bytes that the driver takes beside the engine's buffers; None: never seen."""


@dataclass(frozen=True, slots=True)
class Projector:
    """The part of a model that sees: `mmproj` file."""

    weights: int
    compute: int
    """Bytes of its encoder's worst graph, by formula."""
    host: int = 0
    """Bytes in RAM beside a GPU that encodes: the picture itself, and masks."""
    at_start: int = 0
    """Bytes of `compute` that the engine allocates when it loads; the rest comes with a larger picture."""
    n_ubatch: int = 0
    """The least `n_ubatch` that a picture needs: below it the engine fails an assertion. 0 = any."""


@dataclass(frozen=True, slots=True)
class Lora:
    """An adapter that is applied to the model, by where its tensors go: beside those that they change."""

    name: str
    scale: float
    sha256: str | None
    """None: nobody stated one (a file that is only planned)."""
    blocks: tuple[int, ...]
    """Bytes of each block, those of experts left out."""
    experts: tuple[int, ...]
    """Bytes of each block's routed experts."""
    input: int = 0
    """Bytes in RAM, wherever the rest goes."""
    output: int = 0
    """Bytes of the output head."""
    width: int = 0
    """Most floats that one token has in a result which the model alone has not."""

    @property
    def n_bytes(self) -> int:
        """Of all its tensors."""
        return sum(self.blocks) + sum(self.experts) + self.input + self.output


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
    """Texts become vectors or scores, perhaps beside chat: the engine keeps a result for each token."""
    in_one_piece: bool = False
    """It is for nothing else, and a text has to be worked on at once: none is longer than a micro-batch."""
    n_ubatch: int | None = None
    """Tokens that are worked on at once."""
    cpu_moe: int | None = None
    """So many of the first blocks keep their experts in RAM."""
    split: Split = "layer"
    cache_reuse: int = 0
    """Tokens of a chunk from which on it may be moved within the cache; 0: never."""
    decode_goal: float = 15.0
    """Tokens per second that one request should get (`goals.decode`); `docs` keeps its context within it."""
    limits: Mapping[str, int] = field(default_factory=dict)
    """Bytes that may be taken of a device (by name) or of `Host`: less than a load that ran out of memory."""


@dataclass(frozen=True, slots=True)
class MeasuredRow:
    """One row of the engine's memory table, in bytes. `context` is KV cache and recurrent state."""

    model: int
    context: int
    compute: int
