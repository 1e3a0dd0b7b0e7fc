"""GPUs that an engine had and has no more, and why. Pure.

| state  | means                                           | left by                                       |
| ------ | ----------------------------------------------- | --------------------------------------------- |
| `ok`   | the engine lists it                             | not listed, or of no use: lost                |
| `lost` | loads do without it                             | seen again, and a test load worked: back      |
|        |                                                 | a load lists it, unless of no use: ok         |
| `back` | who serves without it is loaded there when idle | a load lists it: ok; a load misses it: lost   |

A device is known by its description, since numbers move: `CUDA0` may be another card after one has gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from appliance.engines import Build
from appliance.engines.environment import child_environment
from appliance.hardware import Gpu, Machine
from appliance.operations.machine.cards import matched
from appliance.operations.machine.survey import Survey
from appliance.planning import DeviceMemory

State = Literal["ok", "lost", "back"]
Seen = Literal["here", "asleep", "trouble", "gone", "unknown"]
"""How the system shows a GPU. `unknown`: it can't tell which of its GPUs the device is."""
Key = tuple[str, str, int]
"""Engine, description, and which of several alike."""

TRY_EVERY_S = 600.0
"""Between two tries to use it again."""
UNUSABLE = "unusable"
_LOOK_IN_THE_LOG = "Restart the machine; if it comes back, look for `Xid` or `amdgpu` in the kernel log."


@dataclass(frozen=True, slots=True)
class Loss:
    """One message and one thing to do."""

    key: Key
    device: str
    title: str
    reason: str
    """The driver's (`version_mismatch`, `gpu_lost`), `off_bus`, `not_listed`, `no_engine` or `unusable`."""
    message: str
    fix: str
    since: float
    """Unix seconds."""
    codes: tuple[str, ...] = ()
    """What a model gave up for it, as in `X-Appliance-Degraded`."""

    @property
    def detail(self) -> str:
        """For people."""
        return f"{self.message} Models are served without it until it is back, which is looked for."


@dataclass(frozen=True, slots=True)
class Known:
    """One device of an engine. Times of `*_at` are seconds of one steady clock."""

    key: Key
    build: Build
    device: DeviceMemory
    gpu: Gpu | None
    """The driver's, where it is known beyond doubt."""
    state: State = "ok"
    loss: Loss | None = None
    seen: Seen = "here"
    """How it was seen last."""
    looks: int = 0
    look_at: float = 0.0
    """When to look for it again."""
    lost_at: float = 0.0
    tried_at: float | None = None
    suspect: bool = False
    """It was lost, and nothing was loaded on it since: a load that fails there fails because of it."""

    @property
    def last_try(self) -> float:
        """When it was used last, in vain."""
        return self.lost_at if self.tried_at is None else self.tried_at


def of_engine(build: Build) -> str:
    """What tells engines apart."""
    return f"{build.kind} {build.path or build.home or ''}"


def keyed(build: Build) -> Mapping[Key, DeviceMemory]:
    """Its devices that are no software."""
    found: dict[Key, DeviceMemory] = {}
    for device in build.devices:
        if not device.software:
            alike = sum(key[1] == device.description for key in found)
            found[of_engine(build), device.description, alike] = device
    return found


def after_look(known: Mapping[Key, Known], looked: Survey, now: float, unix: float) -> dict[Key, Known]:
    """What is known after a load has looked at the machine."""
    after: dict[Key, Known] = {}
    for build in looked.builds:
        mine = {key: one for key, one in known.items() if key[0] == of_engine(build)}
        after |= compare(mine, build, looked.machine, now, unix)
    if looked.choice is not None:
        build = looked.choice.build
        for key, device in keyed(build).items():
            after.setdefault(key, Known(key, build, device, _gpu_of(build, device, looked.machine)))
    return after


def compare(
    mine: Mapping[Key, Known], build: Build, machine: Machine, now: float, unix: float
) -> dict[Key, Known]:
    """The known devices of one engine beside what it lists now; as many under other names are no loss."""
    listed = keyed(build)
    renamed = build.usable and len(listed) >= len(mine)
    after = {}
    for key, one in mine.items():
        if key in listed:
            after[key] = _present(replace(one, build=build, device=listed[key]))
        elif not renamed:
            after[key] = one if one.state == "lost" else _missing(one, build, machine, now, unix)
    return after


def unusable(one: Known, now: float, unix: float) -> Known:
    """It is listed, and the engine fails on it."""
    message = f"{one.device.description}: {one.build.build} fails on it, though it lists it."
    return _lost(one, UNUSABLE, message, _LOOK_IN_THE_LOG, now, unix)


def felt(known: Mapping[Key, Known], looked: Survey) -> Loss | None:
    """The first loss that a load with this look suffers: another engine may still see the same card."""
    build = looked.choice.build if looked.choice is not None else None
    chosen = () if build is None else build.devices
    here = {gpu.id for gpu in matched(chosen, looked.machine.gpus, child_environment()) if gpu is not None}
    for one in known.values():
        if one.loss is None or one.state == "ok":
            continue
        other = build is None or of_engine(build) != one.key[0]
        if not (other and one.gpu is not None and one.gpu.id in here):
            return one.loss
    return None


def shunned(known: Mapping[Key, Known], now: float) -> frozenset[str]:
    """Devices that a load leaves alone though they are listed; after a while one may try them again."""
    return frozenset(
        one.device.name
        for one in known.values()
        if one.state == "lost"
        and one.loss is not None
        and one.loss.reason == UNUSABLE
        and now - one.last_try < TRY_EVERY_S
    )


def shows(one: Known, machine: Machine) -> Seen:
    """How the system shows it, without waking it."""
    known = one.gpu
    if known is None:
        return "unknown"
    gpu = next((gpu for gpu in machine.gpus if _same(gpu, known)), None)
    if gpu is None:
        return "gone"
    if gpu.asleep:
        return "asleep"
    return "trouble" if _troubled(one, machine) else "here"


def _present(one: Known) -> Known:
    """A load lists it; one that is of no use stays lost."""
    kept = one.state == "lost" and one.loss is not None and one.loss.reason == UNUSABLE
    return one if kept else replace(one, state="ok", loss=None, looks=0)


def _missing(one: Known, build: Build, machine: Machine, now: float, unix: float) -> Known:
    reason, message, fix = _why(one, build, machine)
    lost = _lost(one, reason, f"{one.device.description}: {message}", fix, now, unix)
    return replace(lost, seen=shows(one, machine))


def _lost(one: Known, reason: str, message: str, fix: str, now: float, unix: float) -> Known:
    loss = Loss(one.key, one.device.name, one.device.description, reason, message, fix, unix)
    return replace(
        one, state="lost", loss=loss, looks=0, look_at=now, lost_at=now,
        tried_at=now if one.state == "back" else one.tried_at, suspect=True,
    )  # fmt: skip


def _why(one: Known, build: Build, machine: Machine) -> tuple[str, str, str]:
    trouble = machine.trouble if _troubled(one, machine) else None
    if trouble is not None:
        return trouble.state, trouble.message, trouble.fix
    if shows(one, machine) == "gone":
        fix = "Switch it on or plug it in; else restart the machine and look for `Xid` in the kernel log."
        return "off_bus", "It is not on the bus any more.", fix
    if not build.usable:
        note = build.note or f"{build.build} gives no answer."
        return "no_engine", note, "`appliance engines list` shows which engines start."
    text = f"{build.build} does not list it any more, though the system does."
    return "not_listed", text, _LOOK_IN_THE_LOG


def _troubled(one: Known, machine: Machine) -> bool:
    """All troubles that a driver tells are NVIDIA's."""
    nvidia = one.device.backend == "cuda" or (one.gpu is not None and one.gpu.backend == "cuda")
    return machine.trouble is not None and nvidia


def _same(gpu: Gpu, other: Gpu) -> bool:
    return gpu.id == other.id or (gpu.pci is not None and gpu.pci == other.pci)


def _gpu_of(build: Build, device: DeviceMemory, machine: Machine) -> Gpu | None:
    """Only beyond doubt: among several cards of one name, the address must tell."""
    names = [gpu.name for gpu in machine.gpus]
    pairs = zip(build.devices, matched(build.devices, machine.gpus, child_environment()), strict=True)
    gpu = next((gpu for one, gpu in pairs if one == device), None)
    if gpu is None or (names.count(gpu.name) > 1 and device.pci != gpu.pci):
        return None
    return gpu
