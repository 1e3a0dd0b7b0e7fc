"""Who tells a GPU's memory: its driver, else the engine's device list; and where the two disagree. Pure.

Two figures for one card differ for good reasons, too, which are no disagreement:

- CUDA and ROCm count without what the driver keeps for itself (NVML tells it as `reserved`): 0.3 to 0.6 GiB.
- Vulkan adds up the heaps of the device: a window of 256 MiB may count beside, rounding differs.
- What shares the RAM (GB10, APUs, Apple) has no total of its own: an engine counts the RAM, a share of it,
  or what the firmware set aside, the driver the sum of the pools.

What is left has a cause that a person should know: a slice of a card (MIG, a virtual GPU), a Vulkan driver
that shows one heap of several, a build that takes a card for one that shares the RAM, or a wrong pair.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace

from appliance.daemon.driver_memory import views_by_device
from appliance.daemon.served import ServingSnapshot
from appliance.engines.environment import child_environment
from appliance.monitor import GpuView
from appliance.operations.machine.cards import matched
from appliance.operations.machine.memory import is_integrated
from appliance.operations.machine.survey import Note, Survey
from appliance.planning import DeviceMemory
from appliance.units import MIB, size

_RUNS = ("starting", "loading", "ready", "busy", "stopping")
_SHARE, _LEAST = 0.05, 300 * MIB
"""Totals that differ by less say the same."""
_ELSEWHERE = ("RPC", "BLAS")
"""Devices of an engine that are no GPU of this machine, by the begin of their names."""
_BY_SYSFS = ("cuda", "rocm")
"""Whose driver is read: their rows come from there, or not at all while it is not."""


@dataclass(frozen=True, slots=True)
class Disagreement:
    """What two sources say about the memory of one GPU."""

    driver: int
    engine: int
    build: str
    """The engine that says so."""


@dataclass(frozen=True, slots=True)
class GpuRow:
    """One GPU as the status shows it."""

    view: GpuView
    disagrees: Disagreement | None = None

    def told(self) -> dict[str, int | str] | None:
        """Both totals, for the status; None where the sources agree or only one says anything."""
        return None if self.disagrees is None else asdict(self.disagrees)


def gpu_rows(views: Sequence[GpuView], served: Iterable[ServingSnapshot]) -> tuple[GpuRow, ...]:
    """The monitor's GPUs completed by the engines' lists, and those that only an engine knows."""
    by_load = sorted(served, key=lambda one: one.loaded_since or 0.0, reverse=True)
    rows = {view.id: GpuRow(view) for view in views}
    for one in by_load:
        if one.survey is None or one.survey.choice is None:
            continue
        known = views_by_device(one.survey, [row.view for row in rows.values()])
        gpus = {gpu.id: gpu for gpu in one.survey.machine.gpus}
        for device in one.survey.choice.build.devices:
            view = known.get(device.name)
            if view is None or device.software:
                continue
            shares = is_integrated(device, gpus.get(view.id), one.survey.machine.ram_total)
            rows[view.id] = _completed(rows[view.id], device, one, by_load, shares=bool(shares))
        for view in _engine_only(one, by_load, tuple(row.view for row in rows.values())):
            rows[view.id] = GpuRow(view)
    return tuple(rows.values())


def notes(rows: Iterable[GpuRow]) -> Iterable[Note]:
    """What a person should know of figures that do not fit."""
    for row in rows:
        if (found := row.disagrees) is not None:
            yield Note(
                "vram_disagrees",
                f"{row.view.name}: the driver says {size(found.driver)} of memory, {found.build} says "
                f"{size(found.engine)}. Plans use what the engine says, and never more free memory than "
                "either says.",
                _what_to_do(found),
            )


def _what_to_do(found: Disagreement) -> str:
    if found.engine < found.driver:
        return (
            "If this is a slice of the GPU (MIG, a virtual GPU), nothing. Else update the GPU's driver, or "
            "try another build: `appliance engines list`."
        )
    return (
        "Models may be planned too large: try another build (`appliance engines list`), or update the driver."
    )


def _completed(
    row: GpuRow,
    device: DeviceMemory,
    one: ServingSnapshot,
    served: Sequence[ServingSnapshot],
    *,
    shares: bool,
) -> GpuRow:
    """The row with what the engine says: as its memory where no driver tells, else held against it."""
    view = row.view
    if device.total is None or row.disagrees is not None:
        return row
    if view.total is None:
        free = None if view.asleep else _free(device, one)
        held = view.used_by_engine if view.used_by_engine is not None else _held(device.name, served)
        filled = replace(view, total=device.total, free=free, used_by_engine=held, memory_source="engine")
        return replace(row, view=filled)
    if shares or view.memory_source != "driver" or _same(device.total, view):
        return row
    assert one.survey is not None
    return replace(row, disagrees=Disagreement(view.total, device.total, one.survey.build().build))


def _same(engine: int, view: GpuView) -> bool:
    """The engine's total lies between the driver's and that without what the driver reserves."""
    assert view.total is not None
    slack = max(_SHARE * view.total, _LEAST)
    return view.total - (view.reserved or 0) - slack <= engine <= view.total + slack


def _engine_only(
    one: ServingSnapshot, served: Sequence[ServingSnapshot], known: Sequence[GpuView]
) -> Iterable[GpuView]:
    """GPUs of the engine's list that have no row: detection does not see them, or no driver tells of them."""
    looked = one.survey
    if looked is None or looked.choice is None:
        return
    devices, gpus = looked.choice.build.devices, looked.machine.gpus
    pairs = list(zip(devices, matched(devices, gpus, child_environment()), strict=True))
    names = {gpu.name.lower() for gpu in gpus} | {view.name.lower() for view in known}
    ids, addresses = {view.id for view in known}, {gpu.pci for gpu in gpus if gpu.pci}
    for device, gpu in pairs:
        if device.software or device.name.startswith(_ELSEWHERE) or device.total is None:
            continue
        if gpu is not None:
            if gpu.id not in ids and gpu.backend not in _BY_SYSFS:
                yield _row(gpu.id, gpu.name, gpu.backend, device, one, served)
        elif not _again(device, pairs, names, addresses) and f"engine:{device.name}" not in ids:
            yield _row(f"engine:{device.name}", device.description, device.backend, device, one, served)


def _again(
    device: DeviceMemory, pairs: Iterable[tuple[DeviceMemory, object]], names: set[str], addresses: set[str]
) -> bool:
    """A card that has its row, under another backend's name: one build may list it by CUDA and by Vulkan."""
    words = device.description.lower()
    listed = {(one.backend, one.description.lower()) for one, _ in pairs if one.name < device.name}
    twice = any(backend != device.backend and text == words for backend, text in listed)
    return twice or device.pci in addresses or any(name and name in words for name in names)


def _row(
    key: str,
    name: str,
    backend: str,
    device: DeviceMemory,
    one: ServingSnapshot,
    served: Sequence[ServingSnapshot],
) -> GpuView:
    return GpuView(
        id=key, name=name, backend=backend, total=device.total, free=_free(device, one),
        used_by_engine=_held(device.name, served), temperature=None, slowdown_at=None, reasons=None,
        power=None, power_limit=None, utilisation=None, state="unknown", age_s=None, memory_source="engine",
    )  # fmt: skip


def _free(device: DeviceMemory, one: ServingSnapshot) -> int | None:
    """Free as the engine told before its load, less what the load took since: nobody tells it anew."""
    if device.free is None:
        return None
    ours = _ours(one.survey, device) if one.survey is not None else 0
    return max(0, min(device.total or 0, device.free + ours) - (_held(device.name, (one,)) or 0))


def _ours(looked: Survey, device: DeviceMemory) -> int:
    """What an engine of ours held at that look, and does not hold any more."""
    return next((one.ours for one in looked.devices() if one.name == device.name), 0)


def _held(name: str, served: Iterable[ServingSnapshot]) -> int | None:
    """Bytes of the engines' buffers on the device, by their logs."""
    engines = [one.engine for one in served if one.engine is not None and one.state in _RUNS]
    found = [sum(engine.buffers[name].values()) for engine in engines if name in engine.buffers]
    return round(sum(found) * MIB) if found else None
