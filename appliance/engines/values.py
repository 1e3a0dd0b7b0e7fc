"""The values that leave this room. All frozen; `None` means unknown.

`appliance.planning` is the room below: a plan goes in, what the engine really did comes out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from appliance.planning import DeviceMemory, Plan, Pooling

EngineKind = Literal["llama-server", "xllamacpp", "llama-cpp-python"]

LoadMode = Literal["auto", "none"]
"""As llama.cpp's `--load-mode` names them."""

EngineState = Literal["absent", "starting", "loading", "ready", "busy", "stopping", "failed"]


@dataclass(frozen=True, slots=True)
class Build:
    """One engine found on this machine."""

    kind: EngineKind
    path: str | None
    """The executable, or None for a Python package of our own environment."""
    version: str | None
    build: str
    """For people: `xllamacpp 2026.10.11549`."""
    devices: tuple[DeviceMemory, ...] = ()
    """What it can offload to, software devices included; the CPU is not one of them."""
    sees_gpu: bool = False
    """True when a device is not made of the CPU (llvmpipe, lavapipe, SwiftShader)."""
    note: str | None = None
    """What a person should know: it does not start, it is old, it can't be dated."""
    usable: bool = True
    """False when it is here but did not answer; it is listed and never chosen."""
    name: str = ""
    """What `engines use` calls it: `xllamacpp`, or an installed build's own name, `vulkan-2026.10.1`."""
    home: str | None = None
    """The folder of a build that `engines install` unpacked: a Python build is imported from there, before
    the environment's. None for one that was found.
    """
    date: str | None = None
    """The day of its llama.cpp, `2026-10-10`; None: it can't be dated."""
    date_about: bool = False
    """The day is reckoned from the build number."""
    old: bool = False
    """Older than the security floor: not chosen unless `engine.allow_old` is set."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The build that is used, and the sentence that says why."""

    build: Build
    reason: str
    replaced: str | None = None
    """Why the build that `engines use` names is not the one; None: it is, or none is named."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """A LoRA adapter that changes the model."""

    path: Path
    sha256: str
    """Of its bytes, which were proven."""
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Launch:
    """What one engine is asked to serve."""

    model_id: str
    model_path: Path
    plan: Plan
    embedding: bool = False
    """Serve `/v1/embeddings` too."""
    mmproj: Path | None = None
    """The projector's file; used only when the plan has a place for it."""
    draft: Path | None = None
    """The draft model's file; used only when the plan has a place for it."""
    tight: bool = False
    """A larger plan ran out of memory: a silent crash soon after the start is most likely the same."""
    reranking: bool = False
    """Serve `/v1/rerank`, and nothing else."""
    pooling: Pooling | None = None
    """How the vectors of a text's tokens become one; None: as the model's file says."""
    lora: tuple[Adapter, ...] = ()
    """Adapters that are applied to every request."""
    draft_ref: str | None = None
    """The model that `draft` belongs to; None: it is a file of the model itself."""
    slot_save_path: Path | None = None
    """The folder for saved prompts, which exists; None: none are saved."""
    cache_ram_mib: int | None = None
    """RAM for prompts that left their slots; None: as the engine has it (8 GiB)."""
    load_mode: LoadMode = "auto"
    """How it reads its file: `auto` maps it, `none` reads it tensor by tensor."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a ready engine answers. Never shown: it holds the key."""

    base_url: str
    """`http://engine` over a Unix socket, else `http://127.0.0.1:PORT`."""
    socket: str | None
    key: str = field(repr=False)
    generation: int = 1
    """Grows with each start, so that a client can tell that the process behind is another one."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """One cleaned line of an engine's log. `seq` grows over restarts and never repeats."""

    seq: int
    line: str
    engine: str | None = None
    """Whose it is, where the lines of several engines stand together: the model's ref."""


@dataclass(frozen=True, slots=True)
class CrashReport:
    """How one process of an engine ended that nobody had asked to end. Holds no text of a request."""

    at: float
    """Unix seconds."""
    message: str
    """`The engine ended while serving (signal 9 (SIGKILL)).`"""
    exit: str
    """`exit code 1`, `signal 9 (SIGKILL)`, or that it was killed because it hung."""
    cause: str | None
    hint: str | None
    """What to do next."""
    last_lines: tuple[str, ...]
    flags: tuple[str, ...]
    """Of the plan in force."""
    build: str
    uptime_s: float | None
    """Since it was ready; None: it never was."""
    requests: int
    """That it was given since it was ready."""
    out_of_memory: str | None = None
    """The place whose memory ran out."""


@dataclass(frozen=True, slots=True)
class EngineSnapshot:
    """One engine as others see it."""

    id: str
    """The model's ref, as long as it is served: an engine that is not here yet has the same."""
    model: str
    kind: EngineKind
    build: str
    pid: int | None
    state: EngineState
    gpu_layers: int | None
    """Read back from the log, output head included; None until loaded, or where the log does not tell."""
    n_layer: int | None
    ctx: int | None
    """Tokens per slot, read back."""
    parallel: int | None
    """Slots, read back."""
    slots_busy: int
    tokens_per_second: float | None
    restarts: int
    started_at: float | None
    """Unix seconds."""
    ready_at: float | None
    error: str | None
    """What happened; `cause` says why, `hint` what to do next."""
    cause: str | None
    hint: str | None
    last_lines: tuple[str, ...]
    log_file: str | None
    out_of_memory: str | None
    """The place whose memory ran out (a device's name, `Host` or `unknown`) when that is the error."""
    buffers: Mapping[str, Mapping[str, float]]
    """MiB as the log says, by buffer and purpose: `{"Vulkan0": {"model": 51.94, "kv": 16.5}}`."""
    crash: CrashReport | None = None
    """The last one; it stays when the engine is back."""
