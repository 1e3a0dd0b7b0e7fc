"""What the sensor child reads of Apple silicon, by programs of macOS. Runs only in that child."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence

from appliance.hardware import apple
from appliance.hardware.sensors import GpuSample, MemorySource
from appliance.hardware.sensors import apple as sensor
from appliance.hardware.types import Gpu

_USE_EVERY_S, _HEAT_EVERY_S = 5.0, 10.0
"""A program costs some 20 ms of a core: once a second it would be the monitor's largest cost."""
_DEADLINE_S = 1.0
"""Below that of the watchdog, so that a slow program costs a figure and not the child."""


class AppleReader:
    """The GPU of Apple silicon; nothing elsewhere. Between two runs the last figures stand."""

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        run: sensor.Run | None = None,
        detect: Callable[[], tuple[Gpu, ...]] = apple.detect,
    ) -> None:
        self._clock, self._run, self._detect = clock, run or run_program, detect
        self._gpus: tuple[Gpu, ...] | None = None
        self._use = sensor.Use()
        self._reasons: int | None = None
        self._use_at = self._heat_at = float("-inf")

    def read(self) -> list[GpuSample]:
        """One sample; none on another machine, where no program is run."""
        if self._gpus is None:
            self._gpus = self._detect()
        if not self._gpus:
            return []
        now = self._clock()
        if now - self._use_at >= _USE_EVERY_S:
            self._use, self._use_at = sensor.use(self._run(sensor.IOREG)), now
        if now - self._heat_at >= _HEAT_EVERY_S:
            self._reasons, self._heat_at = sensor.reasons(self._run(sensor.PMSET)), now
        return [sensor.look(_blank(gpu), self._use, self._reasons) for gpu in self._gpus]


def run_program(command: Sequence[str]) -> str | None:
    """What a program wrote; None where it is missing, fails or takes too long."""
    try:
        done = subprocess.run(
            list(command), capture_output=True, text=True, errors="replace", timeout=_DEADLINE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _blank(gpu: Gpu) -> GpuSample:
    source: MemorySource | None = "driver" if gpu.total is not None else None
    return GpuSample(gpu.id, gpu.index, gpu.name, gpu.backend, gpu.total, memory_source=source)
