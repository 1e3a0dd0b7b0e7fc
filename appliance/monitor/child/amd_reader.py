"""What the sensor child reads of AMD and Intel GPUs, through the kernel's files. Runs only in that child."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from appliance.hardware import amd
from appliance.hardware.sensors import GpuSample, intel
from appliance.hardware.sensors import amd as sensor
from appliance.hardware.sensors.gpu_metrics import Throttling
from appliance.hardware.sysfs import Roots, displays, is_suspended
from appliance.hardware.types import Gpu

_LOOK_EVERY_S = 60.0


@dataclass(slots=True)
class _Device:
    """One GPU, and what the next look at it compares with."""

    gpu: Gpu
    path: Path
    maxima: sensor.Maxima | None = None
    throttling: Throttling | None = None
    energy: intel.Energy | None = None
    blank: GpuSample = field(init=False)

    def __post_init__(self) -> None:
        gpu = self.gpu
        self.blank = GpuSample(
            id=gpu.id, index=gpu.index, name=gpu.name, backend=gpu.backend, total=gpu.total
        )

    def forget(self) -> None:
        """What was seen before a sleep says nothing about the time after it."""
        self.throttling = self.energy = None


class AmdReader:
    """AMD and Intel GPUs by sysfs. Which there are is looked up once a minute."""

    def __init__(self, roots: Roots, clock: Callable[[], float]) -> None:
        self._roots = roots
        self._clock = clock
        self._devices: dict[str, _Device] = {}
        self._look_again_at = float("-inf")

    def read(self) -> list[GpuSample]:
        """One sample of each; a sleeping one is not touched."""
        if self._clock() >= self._look_again_at:
            self._look_again_at = self._clock() + _LOOK_EVERY_S
            self._find()
        return [self._sample(device) for device in self._devices.values()]

    def _find(self) -> None:
        """Those that are here now; one that was here before keeps what was seen of it."""
        paths = {card.address: card.path for card in displays(self._roots)}
        found: dict[str, _Device] = {}
        for gpu in amd.detect(self._roots):
            path = paths.get(gpu.pci or "")
            if path is None:
                continue
            known = self._devices.get(gpu.id)
            found[gpu.id] = _Device(gpu, path)
            if known is not None:
                found[gpu.id].throttling, found[gpu.id].energy = known.throttling, known.energy
        self._devices = found

    def _sample(self, device: _Device) -> GpuSample:
        if not device.path.exists():
            device.forget()
            return replace(device.blank, trouble="gpu_lost")
        if is_suspended(device.path):
            device.forget()
            return replace(device.blank, asleep=True)
        if device.gpu.backend != "rocm":
            sample, device.energy = intel.look(device.blank, device.path, device.energy, self._clock())
            return sample
        if device.maxima is None:
            device.maxima = sensor.maxima(device.path)
        sample, device.throttling = sensor.look(device.blank, device.path, device.maxima, device.throttling)
        return sample
