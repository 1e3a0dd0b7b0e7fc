"""What the sensor child reads of NVIDIA GPUs, through NVML. Runs only in that child."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from appliance.hardware import nvidia, nvml
from appliance.hardware.nvml import NvmlDown
from appliance.hardware.sensors import GpuSample
from appliance.hardware.sensors import nvidia as sensor
from appliance.hardware.sysfs import Roots, is_suspended, nvidia_asleep
from appliance.hardware.troubles import BY_HAND, WHOLE, trouble
from appliance.hardware.types import Gpu, Trouble, TroubleState

_PROCESSES_EVERY_S = 10.0  # 4.5 ms a call on a laptop, and the calls share a driver lock
_LIMITS_EVERY_S = 60.0
_BY_HAND_S = 60.0
_FIRST_RETRY_S = 1.0
_LONGEST_RETRY_S = 60.0


@dataclass(slots=True)
class _Device:
    """A device whose handle is held."""

    gpu: Gpu
    handle: Any
    path: Path | None
    """Where the kernel tells whether it sleeps."""
    clocks: sensor.Clocks
    limits: sensor.Limits = field(default_factory=sensor.Limits)
    limits_at: float = float("-inf")
    processes: sensor.Processes | None = None
    processes_at: float = float("-inf")


class NvidiaReader:
    """Owns NVML in the child: initialises it, reads, lets go of a device that is lost, and tries again later.

    A device that sleeps is never touched, also beside others that are awake: what wakes one is to take its
    handle, and any call to it.
    """

    def __init__(
        self, roots: Roots, clock: Callable[[], float], shared: sensor.SharedMemory | None = None
    ) -> None:
        self._roots = roots
        self._clock = clock
        self._shared = shared
        self._devices: dict[str, _Device] = {}
        self._seen: dict[str, Gpu] = {}
        self._asleep: list[tuple[Gpu, Path]] = []
        self._troubles: dict[str, TroubleState] = {}
        """Why a GPU of `_seen` has no handle."""
        self._open = False
        self._retry_at = float("-inf")
        self._retry_s = _FIRST_RETRY_S
        self.trouble: str | None = None
        """Why NVIDIA values are missing, in words; None when nothing is wrong."""

    def read(self) -> list[GpuSample]:
        """One sample of each NVIDIA GPU. One that was seen before and can't be read now stays, with None
        values.
        """
        if not self._open and nvidia_asleep(self._roots):
            self.trouble = None
            return [
                replace(sensor.blank(self._known(gpu)), asleep=True) for gpu in nvidia.from_bus(self._roots)
            ]
        woken = any(not is_suspended(path) for _, path in self._asleep)
        if (not self._open or woken or self._missing()) and self._clock() >= self._retry_at:
            self._restart()
        rows: list[GpuSample] = []
        if self._open:
            try:
                rows = [self._row(device) for device in list(self._devices.values())]
            except NvmlDown as error:
                rows = []
                self._down(error.trouble)
            self._after_reading()
        rows += [replace(sensor.blank(gpu), asleep=True) for gpu, _ in self._asleep]
        read = {row.id for row in rows}
        gone = {key: gpu for key, gpu in self._missing().items() if key not in read}
        rows += [replace(sensor.blank(gpu), trouble=self._troubles.get(key)) for key, gpu in gone.items()]
        return sorted(rows, key=lambda row: row.index)

    def refresh_processes(self) -> None:
        """Ask for the processes with the next sample."""
        for device in self._devices.values():
            device.processes_at = float("-inf")

    def close(self) -> None:
        """Let go of NVML, so that the GPU may sleep."""
        self._devices.clear()
        self._asleep.clear()
        if self._open:
            self._open = False
            nvml.stop()

    def _known(self, gpu: Gpu) -> Gpu:
        """The GPU under the name it had while it was awake: the bus knows only its address."""
        return next((one for one in self._seen.values() if one.pci and one.pci == gpu.pci), gpu)

    def _missing(self) -> dict[str, Gpu]:
        """The GPUs that were seen before, are not asleep, and can't be read now."""
        asleep = {gpu.id for gpu, _ in self._asleep}
        return {key: gpu for key, gpu in self._seen.items() if key not in self._devices and key not in asleep}

    def _restart(self) -> None:
        """Initialise anew, with new handles for all: one that outlives its device can crash the library."""
        self.close()
        cards = nvidia.nvidia_cards(self._roots)
        paths = {card.address: card.path for card in cards}
        failed: dict[int, Trouble] = {}
        try:
            nvml.start()
            self._open = True
            handles = nvidia.handles(cards, failed)
            for index, handle in handles:
                self._take(index, handle, paths, failed)
        except NvmlDown as error:
            self._down(error.trouble)
            return
        for gpu in nvidia.from_bus(self._roots) if any(card.suspended for card in cards) else ():
            if gpu.asleep and gpu.pci in paths:
                self._asleep.append((self._known(gpu), paths[gpu.pci]))
        self._name_the_missing(failed)

    def _take(self, index: int, handle: Any, paths: dict[str, Path], failed: dict[int, Trouble]) -> None:
        try:
            gpu = nvidia.identify(index, handle)
            self._devices[gpu.id] = _Device(gpu, handle, paths.get(gpu.pci or ""), sensor.clocks(handle))
        except NvmlDown as error:
            if error.trouble.state in WHOLE:
                raise
            failed[index] = error.trouble
            return
        self._seen[gpu.id] = gpu
        self._troubles.pop(gpu.id, None)
        stranger = f"nvidia-{index}"  # it could not tell its name before
        if stranger != gpu.id:
            self._seen.pop(stranger, None)
            self._troubles.pop(stranger, None)

    def _name_the_missing(self, failed: dict[int, Trouble]) -> None:
        """After a new start: who is not there, and why."""
        for index, why in failed.items():
            known = next((key for key, gpu in self._missing().items() if gpu.index == index), None)
            if known is None and why.state == "no_permission":
                continue  # given to somebody else
            key = known or f"nvidia-{index}"
            self._seen.setdefault(key, Gpu(key, index, "NVIDIA GPU", "cuda"))
            self._troubles[key] = nvidia.where_it_stands(why, self._roots).state
        missing = self._missing()
        for key in missing:
            self._troubles.setdefault(key, "gpu_lost")
        if missing:
            self._wait(self._troubles[next(iter(missing))], next(iter(missing.values())))
        else:
            self.trouble = None

    def _down(self, why: Trouble) -> None:
        """All of NVML: drop every handle."""
        self.close()
        state = nvidia.where_it_stands(why, self._roots).state
        self._troubles = dict.fromkeys(self._seen, state)
        self._wait(state)

    def _wait(self, state: TroubleState, gpu: Gpu | None = None) -> None:
        """Say what is wrong, and try again later: soon where it may pass, after a minute where it will
        not.
        """
        self._retry_at = self._clock() + (_BY_HAND_S if state in BY_HAND else self._retry_s)
        self._retry_s = min(self._retry_s * 2, _LONGEST_RETRY_S)
        silent = state == "library_missing" and not self._seen and not nvidia.nvidia_cards(self._roots)
        whose = f"{gpu.name}: " if gpu is not None and len(self._seen) > 1 else ""
        self.trouble = None if silent else f"{whose}{trouble(state)}"

    def _row(self, device: _Device) -> GpuSample:
        """One device now. What concerns it alone costs the others nothing."""
        if device.path is not None and is_suspended(device.path):
            return replace(sensor.blank(device.gpu), asleep=True)
        now = self._clock()
        try:
            if now - device.limits_at >= _LIMITS_EVERY_S:
                device.limits = sensor.limits(device.handle)
                device.limits_at = now
            if now - device.processes_at >= _PROCESSES_EVERY_S:
                device.processes = sensor.processes(device.handle, device.gpu.total)
                device.processes_at = now
            row = sensor.look(device.gpu, device.handle, device.limits, device.clocks, self._shared)
            return replace(row, processes=device.processes)
        except NvmlDown as error:
            if error.trouble.state in WHOLE:
                raise
            state = nvidia.where_it_stands(error.trouble, self._roots).state
            del self._devices[device.gpu.id]
            self._troubles[device.gpu.id] = state
            self._wait(state, device.gpu)
            return replace(sensor.blank(device.gpu), trouble=state)

    def _after_reading(self) -> None:
        """With no device left NVML is let go of; with all of them there, the next trouble is a new one."""
        if self._open and not self._devices and self._missing():
            self.close()
        elif not self._missing():
            self._retry_s = _FIRST_RETRY_S
