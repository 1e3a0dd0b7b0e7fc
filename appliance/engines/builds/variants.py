"""Which folder of the publisher's index fits this machine. Pure, but for one small file of ROCm's.

Sources: the package page (CUDA 12.8: Maxwell to Blackwell; 13.2: Turing and later; ROCm 6.4.1 and 7.2.4;
Vulkan) and NVIDIA's table of the drivers that each CUDA release needs. From release 590 on, the driver has no
cards before Turing, so the driver alone decides.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from appliance.errors import EngineError

Backend = Literal["cuda", "rocm", "vulkan"]
BACKENDS: tuple[Backend, ...] = get_args(Backend)
INDEX = "https://xorbitsai.github.io/xllamacpp/whl/"
"""The publisher's own index: one simple index for each variant."""
VARIANTS = ("cu128", "cu132", "rocm-6.4.1", "rocm-7.2.4", "vulkan")

_CUDA_13_2, _CUDA_12_8, _CUDA_12 = 595, 570, 525
"""The first driver release of each; from 525 on, every CUDA 12 may run, but not with every card."""
_ROCM = Path("/opt/rocm/.info/version")


@dataclass(frozen=True, slots=True)
class Facts:
    """What decides. None: not here, or it can't be read."""

    platform: str
    """`sys.platform`."""
    nvidia: str | None = None
    """The driver's version, `570.86.15`."""
    rocm: str | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """The variants to try, the best first, and what a person should know."""

    backend: Backend
    variants: tuple[str, ...]
    note: str | None = None


def rocm_version(file: Path = _ROCM) -> str | None:
    """The version of ROCm in its usual place."""
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()[:40] or None
    except OSError:
        return None


def facts(nvidia: str | None) -> Facts:
    """Those of this machine."""
    return Facts(sys.platform, nvidia, rocm_version())


def wanted(backend: Backend, here: Facts, *, explicit: bool) -> Wanted:
    """The variants of a backend for this machine. Raises EngineError where none can work.

    `explicit`: the user names a source; then a driver that is not here yet is only a note.
    """
    if here.platform == "darwin":
        raise EngineError(
            f"There are no {backend} builds for macOS.",
            cause="The xllamacpp of this environment uses Metal already.",
            hint="`appliance engines list` shows the devices that it sees.",
        )
    if backend == "rocm" and here.platform != "linux":
        raise EngineError("ROCm builds are for Linux only.", hint="`appliance engines install vulkan`.")
    if backend == "cuda":
        return _cuda(here.nvidia, explicit)
    if backend == "rocm":
        return _rocm(here.rocm)
    return Wanted("vulkan", ("vulkan",))


def _cuda(driver: str | None, explicit: bool) -> Wanted:
    found = re.match(r"\d+", driver or "")
    if found is None:
        if explicit:
            return Wanted("cuda", ("cu128",), "No NVIDIA driver was found here.")
        raise EngineError(
            "No NVIDIA driver was found here, so no CUDA build can work.",
            hint="Install NVIDIA's driver first. For another card: `appliance engines install vulkan`.",
        )
    release = int(found[0])
    if release >= _CUDA_13_2:
        return Wanted("cuda", ("cu132", "cu128"))
    if release >= _CUDA_12_8:
        return Wanted("cuda", ("cu128",))
    if release >= _CUDA_12:
        return Wanted(
            "cuda",
            ("cu128",),
            f"The NVIDIA driver {driver} is older than CUDA 12.8 (570): the test load shows if it works.",
        )
    raise EngineError(
        f"The NVIDIA driver {driver} is too old for CUDA 12.8.",
        hint="Update it to 570 or later, or use `appliance engines install vulkan`.",
    )


def _rocm(version: str | None) -> Wanted:
    newest, older = "rocm-7.2.4", "rocm-6.4.1"
    if version is None:
        return Wanted("rocm", (newest, older), "ROCm was not found in /opt/rocm: taking the newer build.")
    return Wanted("rocm", (newest,) if int(re.sub(r"\D.*", "", version) or 0) >= 7 else (older,))
