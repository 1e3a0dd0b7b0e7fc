"""The memory that a plan may count with: what engine, driver and data sheets say, and what runs now."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil

from appliance.engines import pidfile
from appliance.hardware import Gpu, Machine
from appliance.operations.machine.cards import matched
from appliance.paths import Paths
from appliance.planning import HOST, DeviceMemory, HostMemory
from appliance.planning.speed.bandwidth import device_bandwidth, host_bandwidth
from appliance.planning.values import Holder

MOST_HOLDERS = 8
"""Other programs that are named for each device."""
_SAME_AS_RAM = 0.02
"""A device whose memory differs from all of the RAM by this share or less is RAM, where no driver tells."""


@dataclass(frozen=True, slots=True)
class Own:
    """The engine of this appliance that runs now; without one, nothing."""

    pids: frozenset[int] = frozenset()
    ram: int = 0
    """Bytes of RAM that are its alone. Mapped model files do not count: they are cache, and free anyway."""
    planned: Mapping[str, int] = field(default_factory=dict)
    """Bytes by device name as planned, for devices whose driver does not tell who holds what."""
    mapped: int = 0
    """Bytes of model files that engines which stay have mapped. The system calls them available; taking them
    would make each token of those engines wait for the disk."""


NOTHING = Own()


def own(
    paths: Paths | None,
    *,
    staying: frozenset[int] = frozenset(),
    planned: Mapping[str, int] | None = None,
) -> Own:
    """What runs now and would go, by the pid files of this appliance. Reads files; raises nothing.

    The processes of `staying` do not go. `planned` is what goes of each device, where no driver tells.
    """
    running = pidfile.running(paths) if paths is not None else frozenset()
    kept = staying.union(*map(children_of, staying))
    pids = running - kept
    mapped = sum(mapped_ram(pid) for pid in running & kept)
    return Own(pids, sum(map(private_ram, pids)), dict(planned or {}), mapped)


def children_of(pid: int) -> frozenset[int]:
    """The processes below one: a wrapper program's engine. Empty when it is gone."""
    try:
        return frozenset(child.pid for child in psutil.Process(pid).children(recursive=True))
    except (psutil.Error, OSError):
        return frozenset()


def private_ram(pid: int) -> int:
    """Bytes that are free once the process ends; 0 where that can't be read."""
    if not sys.platform.startswith("linux"):
        return _private_elsewhere(pid)
    return _of_status(pid, "RssAnon:")


def whole_private_ram(pid: int) -> int | None:
    """The same of a process and all below it; None where that can't be read."""
    return sum(map(private_ram, {pid} | children_of(pid))) or None


def mapped_ram(pid: int) -> int:
    """Bytes of files that a process has mapped and touched; 0 where that can't be read (Linux only)."""
    return _of_status(pid, "RssFile:") if sys.platform.startswith("linux") else 0


def _of_status(pid: int, key: str) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return 0
    found = next((line.split()[1] for line in lines if line.startswith(key)), "0")
    return int(found) << 10 if found.isdecimal() else 0


def _private_elsewhere(pid: int) -> int:
    try:
        return int(psutil.Process(pid).memory_full_info().uss)
    except (psutil.Error, OSError):
        return 0


def devices(
    listed: Sequence[DeviceMemory], machine: Machine, running: Own, env: Mapping[str, str]
) -> tuple[DeviceMemory, ...]:
    """The engine's devices, completed. `env` is what the engine is started with.

    Free memory is the smaller of what engine and driver say; on a device that shares the RAM, also of what is
    available there.
    """
    found = matched(listed, machine.gpus, env)
    pairs = zip(listed, found, strict=True)
    return tuple(_completed(device, gpu, machine, running) for device, gpu in pairs)


def host(machine: Machine, running: Own, shared: Sequence[DeviceMemory]) -> HostMemory:
    """RAM and cores; what runs now on devices that share the RAM goes with the engine, too."""
    bandwidth = host_bandwidth(machine.cpu_name, machine.cores_physical)
    on_devices = sum(max(0, device.ours - device.apart) for device in shared if device.integrated)
    return HostMemory(
        machine.ram_total,
        None if machine.ram_available is None else max(0, machine.ram_available - running.mapped),
        machine.cores_performance or machine.cores_physical,
        bandwidth=None if bandwidth is None else bandwidth[0],
        ours=_within(running.ram + on_devices, machine.ram_total, machine.ram_available),
    )


def with_seen(device: DeviceMemory, seen: Mapping[str, float]) -> DeviceMemory:
    """The device with the bandwidth that replies showed, where they did."""
    found = seen.get(device.name)
    return device if found is None else replace(device, bandwidth=found, bandwidth_seen=True)


def host_with_seen(host_memory: HostMemory, seen: Mapping[str, float]) -> HostMemory:
    """RAM with the bandwidth that replies showed."""
    found = seen.get(HOST)
    return host_memory if found is None else replace(host_memory, bandwidth=found, bandwidth_seen=True)


def _completed(device: DeviceMemory, gpu: Gpu | None, machine: Machine, running: Own) -> DeviceMemory:
    bandwidth = None if device.software else device_bandwidth(device.description, device.backend)
    integrated = None if device.software else is_integrated(device, gpu, machine.ram_total)
    total, free = device.total, _least(device.free, gpu.free if gpu is not None else None)
    apart = (gpu.apart or 0) if gpu is not None and integrated else 0
    if integrated:
        in_ram = None if machine.ram_available is None else machine.ram_available + apart
        total, free = total if total is not None else machine.ram_total, _least(free, in_ram)
        if bandwidth is None:
            of_ram = host_bandwidth(machine.cpu_name, machine.cores_physical)
            bandwidth = None if of_ram is None else of_ram[0]
    holders = gpu.holders if gpu is not None else ()
    ours = sum(program.n_bytes or 0 for program in holders if program.pid in running.pids)
    if not ours and not any(program.n_bytes for program in holders):
        ours = running.planned.get(device.name, 0)
    others = [program for program in holders if program.pid not in running.pids]
    return replace(
        device,
        total=total,
        free=free,
        integrated=integrated,
        bandwidth=device.bandwidth if device.bandwidth is not None else bandwidth,
        held=tuple(Holder(program.name, program.pid, program.n_bytes) for program in others[:MOST_HOLDERS]),
        ours=_within(ours, total, free),
        apart=min(apart, free) if free is not None else apart,
        pci=device.pci if device.pci is not None else (gpu.pci if gpu is not None else None),
    )


def is_integrated(device: DeviceMemory, gpu: Gpu | None, ram_total: int | None) -> bool | None:
    """Whether the device shares the RAM, by the engine, Vulkan and the driver; None where nobody tells.

    CUDA builds may list a GB10 or a Jetson like a card. The driver of the first tells no memory of it, the
    second is not on the bus at all, and for both the engine lists the RAM.
    """
    told = (device.integrated, gpu.integrated if gpu is not None else None)
    if True in told:
        return True
    if device.backend == "cuda" and device.total is not None and ram_total is not None:
        slack = _SAME_AS_RAM * ram_total
        if gpu is None and abs(device.total - ram_total) <= slack:
            return True
        if gpu is not None and gpu.total is None and not gpu.asleep and device.total >= ram_total - slack:
            return True  # a container's limit may be lower than what the engine lists
    return False if False in told else None


def _least(*values: int | None) -> int | None:
    return min((value for value in values if value is not None), default=None)


def _within(ours: int, total: int | None, free: int | None) -> int:
    """Not more than is taken at all: figures of two sources never add up to more than there is."""
    return ours if total is None or free is None else max(0, min(ours, total - free))
