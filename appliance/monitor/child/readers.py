"""What the sensor child reads of NVIDIA GPUs, through NVML. Runs only in that child."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from appliance.hardware import nvidia, nvml
from appliance.hardware.nvml import NvmlDown, query
from appliance.hardware.sensors import GpuSample
from appliance.hardware.sysfs import NVIDIA, Roots, displays, nvidia_asleep
from appliance.hardware.types import Gpu, TroubleState

_SLOWDOWN = 1
"""NVML_TEMPERATURE_THRESHOLD_SLOWDOWN; index 3, GPU_MAX, is where many laptops run all day."""
_SLOWDOWN_TLIMIT = 194
"""The margin at which slowdown begins, on Ada and later (a small negative number)."""
_PROCESSES_EVERY_S = 10.0  # 4.5 ms a call on a laptop, and the calls share a driver lock
_MAX_PROCESSES = 64
_OFF_S = 60.0
_FIRST_RETRY_S = 1.0
_LONGEST_RETRY_S = 60.0
_OFF = ("library_missing", "driver_not_loaded", "version_mismatch", "no_permission")
"""States that only a person can end; asked again once a minute."""


class NvidiaReader:
    """Owns NVML in the child: initialises it, reads, lets go of it when the GPU is lost, and tries again
    later.
    """

    def __init__(self, roots: Roots, clock: Callable[[], float]) -> None:
        self._roots = roots
        self._clock = clock
        self._devices: dict[str, tuple[Gpu, Any]] = {}
        self._seen: dict[str, Gpu] = {}
        self._processes: dict[str, tuple[tuple[int, int | None], ...] | None] = {}
        self._open = False
        self._retry_at = float("-inf")
        self._retry_s = _FIRST_RETRY_S
        self._processes_at = float("-inf")
        self.trouble: str | None = None
        """Why NVIDIA values are missing, in words; None when nothing is wrong."""

    def read(self) -> list[GpuSample]:
        """One sample of each NVIDIA GPU. One that was seen before and can't be read now stays, with None
        values.
        """
        if not self._open and nvidia_asleep(self._roots):
            self.trouble = None
            return [replace(_blank(gpu), asleep=True) for gpu in nvidia.from_bus(self._roots)]
        if (not self._open or self._missing()) and self._clock() >= self._retry_at:
            self._restart()
        samples: list[GpuSample] = []
        if self._open:
            try:
                samples = self._sample()
            except NvmlDown as error:
                self._down(error)
        return samples + [_blank(gpu) for gpu in self._missing()]

    def refresh_processes(self) -> None:
        """Ask for the processes with the next sample."""
        self._processes_at = float("-inf")

    def close(self) -> None:
        """Let go of NVML, so that the GPU may sleep."""
        if self._open:
            nvml.stop()
        self._open = False
        self._devices.clear()

    def _missing(self) -> list[Gpu]:
        """The GPUs that were seen before and can't be read now."""
        return [gpu for key, gpu in self._seen.items() if key not in self._devices]

    def _restart(self) -> None:
        self.close()
        try:
            nvml.start()
            self._open = True
            found = [(nvidia.identify(index, handle), handle) for index, handle in nvidia.handles()]
        except NvmlDown as error:
            self._down(error)
            return
        self._devices = {gpu.id: (gpu, handle) for gpu, handle in found}
        self._seen.update({gpu.id: gpu for gpu, _ in found})
        self.refresh_processes()
        if self._missing():
            self._wait("gpu_lost")
        else:
            self.trouble = None

    def _down(self, error: NvmlDown) -> None:
        """Drop every handle: one that outlives a device restart can crash inside the library."""
        self.close()
        self._wait(error.trouble.state)

    def _wait(self, state: TroubleState) -> None:
        """Say what is wrong, and try again later: soon where it may pass, after a minute where it will
        not.
        """
        self._retry_at = self._clock() + (_OFF_S if state in _OFF else self._retry_s)
        self._retry_s = min(self._retry_s * 2, _LONGEST_RETRY_S)
        silent = state == "library_missing" and not self._seen and not self._has_card()
        self.trouble = None if silent else str(nvml.trouble(state))

    def _has_card(self) -> bool:
        return any(display.vendor == NVIDIA for display in displays(self._roots))

    def _sample(self) -> list[GpuSample]:
        now = self._clock()
        with_processes = now - self._processes_at >= _PROCESSES_EVERY_S
        samples = []
        for key, (gpu, handle) in self._devices.items():
            if with_processes:
                self._processes[key] = _processes(handle)
            samples.append(_read(gpu, handle, self._processes.get(key)))
        if with_processes:
            self._processes_at = now
        if not self._missing():
            self._retry_s = _FIRST_RETRY_S
        return samples


def _blank(gpu: Gpu) -> GpuSample:
    return GpuSample(id=gpu.id, index=gpu.index, name=gpu.name, backend=gpu.backend, total=gpu.total)


def _read(gpu: Gpu, handle: Any, processes: tuple[tuple[int, int | None], ...] | None) -> GpuSample:
    memory = nvidia.read_memory(handle)
    temperature = _temperature(handle)
    margin = query("nvmlDeviceGetMarginTemperature", handle)
    headroom, slowdown_at = _headroom(handle, temperature, margin)
    utilisation = query("nvmlDeviceGetUtilizationRates", handle)
    return replace(
        _blank(gpu),
        total=memory.total,
        free=memory.free,
        used=memory.used,
        temperature=temperature,
        slowdown_at=slowdown_at,
        headroom=headroom,
        margin=None if margin is None else float(margin),
        reasons=_reasons(handle),
        power=_watts(query("nvmlDeviceGetPowerUsage", handle)),
        power_limit=_watts(query("nvmlDeviceGetEnforcedPowerLimit", handle)),
        utilisation=None if utilisation is None else float(utilisation.gpu),
        processes=processes,
    )


def _temperature(handle: Any) -> float | None:
    value = query("nvmlDeviceGetTemperatureV", handle, 0)
    if value is None:  # older drivers have only the call that newer headers deprecate
        value = query("nvmlDeviceGetTemperature", handle, 0)
    return _plausible(value)


def _headroom(
    handle: Any, temperature: float | None, margin: int | None
) -> tuple[float | None, float | None]:
    """Degrees to slowdown, and the temperature where it begins; from the threshold, else from the margins."""
    threshold = _plausible(query("nvmlDeviceGetTemperatureThreshold", handle, _SLOWDOWN))
    if threshold is not None:
        return (threshold - temperature if temperature is not None else None), threshold
    limit = nvml.field(handle, _SLOWDOWN_TLIMIT)
    if limit is None or margin is None:
        return None, None
    limit = limit - (1 << 32) if limit >= 1 << 31 else limit  # negative numbers come as unsigned ones
    headroom = float(margin - limit)
    return headroom, (temperature + headroom if temperature is not None else None)


def _reasons(handle: Any) -> int | None:
    mask = query("nvmlDeviceGetCurrentClocksEventReasons", handle)
    if mask is None:
        mask = query("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    return None if mask is None else int(mask)


def _processes(handle: Any) -> tuple[tuple[int, int | None], ...] | None:
    found = query("nvmlDeviceGetComputeRunningProcesses", handle)
    if found is None:
        return None
    return tuple(
        (int(process.pid), None if process.usedGpuMemory is None else int(process.usedGpuMemory))
        for process in found[:_MAX_PROCESSES]
    )


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000


def _plausible(celsius: float | None) -> float | None:
    """A sensor that says 0 or 200 degrees says nothing."""
    return float(celsius) if celsius is not None and 0 < celsius < 150 else None
