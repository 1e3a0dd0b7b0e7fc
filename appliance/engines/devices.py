"""The device lists of the engines, as planning wants them: software devices marked, the CPU left out."""

from __future__ import annotations

import json
import re
from typing import Any

from appliance.planning import DeviceMemory
from appliance.text import clean_line
from appliance.units import MIB

_LISTED = re.compile(r"^\s+(\w+): (.*) \((\d+) MiB, (\d+) MiB free\)\s*$", re.MULTILINE)
_BACKENDS = (
    ("CUDA", "cuda"), ("ROCm", "rocm"), ("HIP", "rocm"), ("MTL", "metal"), ("Metal", "metal"),
    ("Vulkan", "vulkan"), ("SYCL", "sycl"), ("OpenCL", "opencl"), ("MUSA", "musa"), ("CANN", "cann"),
)  # fmt: skip
_SOFTWARE = ("llvmpipe", "lavapipe", "swiftshader", "softpipe", "basic render", "pocl")


def from_text(text: str) -> tuple[DeviceMemory, ...]:
    """The output of `llama-server --list-devices`."""
    return tuple(_device(m[1], m[2], int(m[3]) * MIB, int(m[4]) * MIB, None) for m in _LISTED.finditer(text))


def from_json(text: str) -> tuple[DeviceMemory, ...]:
    """The last line of `children/devices.py`. Raises ValueError when it is not a list of devices."""
    rows = json.loads(text.strip().rpartition("\n")[2])
    return tuple(_from_row(row) for row in rows if row["kind"] in ("gpu", "igpu"))


def _from_row(row: dict[str, Any]) -> DeviceMemory:
    total = row["total"] or None  # some backends answer 0 for unknown
    free = row["free"] if total is not None else None
    pci = clean_line(str(row.get("pci") or ""), 20).lower() or None
    return _device(row["name"], row["description"], total, free, row["kind"] == "igpu", pci)


def _device(
    name: str,
    description: str,
    total: int | None,
    free: int | None,
    integrated: bool | None,
    pci: str | None = None,
) -> DeviceMemory:
    description = clean_line(description, 200)
    backend = next((word for prefix, word in _BACKENDS if name.startswith(prefix)), "other")
    software = is_software(description)
    return DeviceMemory(
        name=clean_line(name, 40),
        description=description,
        backend=backend,
        total=total,
        free=free,
        software=software,
        integrated=True if backend == "metal" else integrated,
        pci=pci,
    )


def is_software(description: str) -> bool:
    """True for a device that is made of the CPU: it only looks like a GPU."""
    lowered = description.lower()
    return any(word in lowered for word in _SOFTWARE) or lowered.startswith("cpu")
