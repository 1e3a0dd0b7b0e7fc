"""What this machine has: GPUs, RAM, cores, battery. Facts only; what follows from them is decided elsewhere.

`detect` and `detect_safely` load when they are first used, so that the sensor child, which needs only the
readers, stays small.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from appliance.hardware.types import Battery, Gpu, Machine, Program

if TYPE_CHECKING:
    from appliance.hardware.detection import detect, detect_safely

__all__ = ["Battery", "Gpu", "Machine", "Program", "detect", "detect_safely"]


def __getattr__(name: str) -> Any:
    if name in ("detect", "detect_safely"):
        from appliance.hardware import detection

        return getattr(detection, name)
    raise AttributeError(name)
