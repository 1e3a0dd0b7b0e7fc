"""What the sensor child reads of the CPU package. Runs only in that child."""

from __future__ import annotations

import sys
from collections.abc import Callable

from appliance.hardware import host
from appliance.hardware.sensors import CpuSample, cpu
from appliance.hardware.sysfs import Roots

_FIND_EVERY_S = 60.0


class CpuReader:
    """Which files tell about the CPU is looked up once a minute: a driver may be loaded late."""

    def __init__(
        self, roots: Roots, clock: Callable[[], float], *, linux: bool = sys.platform.startswith("linux")
    ) -> None:
        self._roots, self._clock, self._linux = roots, clock, linux
        self._files = cpu.Files()
        self._find_at = float("-inf")

    def read(self) -> CpuSample:
        """The package now."""
        if self._clock() >= self._find_at:
            self._find_at = self._clock() + _FIND_EVERY_S
            name = cpu.Files(name=host.cpu_name(self._roots))
            self._files = cpu.find(self._roots) if self._linux else name
        return cpu.look(self._files) if self._linux else cpu.look_by_psutil(self._files.name)
