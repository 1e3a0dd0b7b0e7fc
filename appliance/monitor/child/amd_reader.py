"""What the sensor child reads of AMD GPUs, through the kernel's files. Runs only in that child."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from appliance.hardware import amd
from appliance.hardware.sensors import GpuSample
from appliance.hardware.sysfs import Roots, displays, is_suspended
from appliance.hardware.types import Gpu

_LOOK_EVERY_S = 60.0


class AmdReader:
    """AMD GPUs by sysfs; Intel ones are only named. Which GPUs there are is looked up once a minute."""

    def __init__(self, roots: Roots, clock: Callable[[], float]) -> None:
        self._roots = roots
        self._clock = clock
        self._gpus: tuple[Gpu, ...] = ()
        self._paths: dict[str, Path] = {}
        self._look_again_at = float("-inf")

    def read(self) -> list[GpuSample]:
        """One sample of each; a sleeping one is not touched."""
        if self._clock() >= self._look_again_at:
            self._look_again_at = self._clock() + _LOOK_EVERY_S
            self._gpus = amd.detect(self._roots)
            self._paths = {card.address: card.path for card in displays(self._roots)}
        return [self._sample(gpu) for gpu in self._gpus]

    def _sample(self, gpu: Gpu) -> GpuSample:
        path = self._paths.get(gpu.pci or "")
        asleep = path is not None and is_suspended(path)
        if path is None or asleep or gpu.backend != "rocm":
            return replace(_blank(gpu), asleep=asleep)
        reading = amd.read_amd(path)
        temperature, critical = _plausible(reading.temperature), _plausible(reading.critical_at)
        return replace(
            _blank(gpu),
            total=reading.total,
            free=reading.free,
            used=reading.used,
            temperature=temperature,
            slowdown_at=critical,
            headroom=None if critical is None or temperature is None else critical - temperature,
            power=reading.power,
            power_limit=reading.power_limit,
            utilisation=reading.utilisation,
        )


def _blank(gpu: Gpu) -> GpuSample:
    return GpuSample(id=gpu.id, index=gpu.index, name=gpu.name, backend=gpu.backend, total=gpu.total)


def _plausible(celsius: float | None) -> float | None:
    """A sensor that says 0 or 200 degrees says nothing."""
    return float(celsius) if celsius is not None and 0 < celsius < 150 else None
