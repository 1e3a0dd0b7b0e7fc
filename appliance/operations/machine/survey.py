"""One look at the machine: what is here, which engines were found, and which one would be used."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from appliance.engines import Build, Choice, choose, discover, without_gpu
from appliance.engines.builds import records
from appliance.engines.environment import child_environment
from appliance.errors import EngineError
from appliance.hardware import Machine, detect_safely
from appliance.operations.lessons.learning import Lessons
from appliance.operations.machine import memory
from appliance.operations.machine.memory import Own
from appliance.paths import Paths
from appliance.planning import DeviceMemory, HostMemory
from appliance.settings import Settings

_ALL_GPUS_SEEN = ("linux", "darwin")
"""Where detection sees the GPUs of every vendor; elsewhere an engine may see one that it does not."""
GPU_ENGINE_COMMAND = {"cuda": "cuda", "rocm": "rocm"}
"""The `engines install` word for a GPU's backend; every other one takes `vulkan`."""


@dataclass(frozen=True, slots=True)
class Note:
    """Something about the machine that a person should know: since when, detail, what to do."""

    code: str
    detail: str
    todo: str | None = None
    since: float | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Survey:
    """What planning and starting an engine need to know."""

    machine: Machine
    builds: tuple[Build, ...]
    choice: Choice | None
    """None when no engine can be started here, and `error` says why; or when none was asked (`glance`)."""
    error: EngineError | None
    own: Own = memory.NOTHING
    """The engine of this appliance that runs now, whose memory goes when another model is loaded."""

    seen: Mapping[str, float] = field(default_factory=dict)
    """Bandwidths that replies of the chosen engine showed, by device name and `Host`."""

    likely: str | None = None
    """The build that would be chosen, where none was asked (`glance`)."""

    def build(self) -> Build:
        """The engine to use. Raises the EngineError that choosing ended with."""
        if self.choice is None:
            assert self.error is not None
            raise self.error
        return self.choice.build

    def devices(self) -> tuple[DeviceMemory, ...]:
        """The chosen engine's devices with what the driver and the data sheets know of them."""
        found = memory.devices(self.build().devices, self.machine, self.own, child_environment())
        return tuple(memory.with_seen(device, self.seen) for device in found)

    def host(self) -> HostMemory:
        """RAM and cores; what the running engine holds on devices that share the RAM goes with it, too."""
        shared = self.devices() if self.choice is not None else ()
        return memory.host_with_seen(memory.host(self.machine, self.own, shared), self.seen)

    def gpu_unused(self) -> Note | None:
        """The note for a GPU that is here while the engine in use can't use it."""
        if not self.machine.gpus or (self.choice is not None and self.choice.build.sees_gpu):
            return None
        gpu, trouble = self.machine.gpus[0], self.machine.trouble
        if trouble is not None:
            detail = f"{gpu.name} is here and can't be used: {trouble.message} Models run on the CPU."
            return Note("gpu_trouble", detail, trouble.fix)
        other = next((build for build in self.builds if build.sees_gpu and build.usable), None)
        if other is not None and self.choice is not None:
            return Note(
                "no_gpu_engine",
                f"{gpu.name} is here and {other.build} can use it, but {self.choice.build.build} is used.",
                "`appliance config set engine.kind auto`, or start with --engine auto.",
            )
        word = GPU_ENGINE_COMMAND.get(gpu.backend, "vulkan")
        engine = self.choice.build.build if self.choice is not None else "no engine"
        return Note(
            "no_gpu_engine",
            f"{gpu.name} is here, but {engine} can't use it: the model runs on the CPU.",
            f"`appliance engines install {word}`, or name a llama-server that sees the GPU: "
            "`appliance config set engine.llama_server FILE`.",
        )

    def replaced(self) -> Note | None:
        """The note for a build that the user chose and that is not the one."""
        if self.choice is None or self.choice.replaced is None:
            return None
        return Note(
            "engine_replaced",
            f"{self.choice.replaced.rstrip('.')}. {self.choice.build.build} is used instead.",
            "`appliance engines list` shows what there is; `appliance engines use NAME|auto` chooses.",
        )

    def to_json(self) -> dict[str, Any]:
        """The document of `engines list`."""
        chosen: Mapping[str, Any] | None = None
        if self.choice is not None:
            chosen = {
                "name": self.choice.build.name,
                "build": self.choice.build.build,
                "kind": self.choice.build.kind,
                "reason": self.choice.reason,
            }
        note = self.replaced() or self.gpu_unused()
        return {
            "engines": [asdict(build) for build in self.builds],
            "chosen": chosen,
            "error": None if self.error is None else self.error.to_json(),
            "note": None if note is None else note.to_json(),
        }


async def survey(
    settings: Settings,
    kind: str | None = None,
    *,
    wake: bool = False,
    paths: Paths | None = None,
    staying: frozenset[int] = frozenset(),
) -> Survey:
    """Detect hardware and engines, each in a child process with a time limit. Raises nothing.

    `wake` powers up a sleeping laptop GPU, so that its memory is known: before a load, never for a look.
    With `paths` installed builds and the one that the user chose count, the memory of the engines that run
    now is told apart from that of other programs, and what replies showed here counts. Engines whose
    processes are in `staying` stay; the others' memory goes.
    """
    wanted = settings.engine if kind is None else settings.engine.model_copy(update={"kind": kind})
    machine, builds, own = await asyncio.gather(
        detect_safely(wake=wake),
        discover(wanted, paths),
        asyncio.to_thread(memory.own, paths, staying=staying),
    )
    try:
        use = None if paths is None else await asyncio.to_thread(records.used, paths)
        choice = choose(builds, wanted.kind, use=use, allow_old=wanted.allow_old)
    except EngineError as error:
        return Survey(machine, builds, None, error, own)
    return Survey(machine, builds, choice, None, own, await _seen(paths, choice.build.build))


async def glance(settings: Settings, paths: Paths | None = None) -> Survey:
    """For a list: where this system has no GPU, memory is all that counts, and no engine is started to ask.

    Saves half a second on two cores. Raises nothing. `choice` and `error` are both None when none was asked.
    """
    if sys.platform.startswith(_ALL_GPUS_SEEN):
        machine, own = await asyncio.gather(detect_safely(), asyncio.to_thread(memory.own, paths))
        if not machine.gpus:
            likely = without_gpu(settings.engine, paths)
            return Survey(machine, (), None, None, own, await _seen(paths, likely), likely)
    return await survey(settings, paths=paths)


async def _seen(paths: Paths | None, build: str | None) -> Mapping[str, float]:
    """Bandwidths that replies showed."""
    if paths is None or build is None:
        return {}
    return await asyncio.to_thread(Lessons(paths.learned).bandwidths, build)
