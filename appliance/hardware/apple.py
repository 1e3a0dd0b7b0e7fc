"""Apple silicon: one GPU that shares the RAM. What is free is not public; the engine's device list has it."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Callable

from appliance.hardware.types import Gpu
from appliance.text import clean_line


def detect(ask: Callable[[str], str | None] | None = None) -> tuple[Gpu, ...]:
    """The GPU of an Apple silicon Mac, nothing elsewhere.

    `total` is known only where the user set a limit: 0 means that the system decides, about
    65 to 75 % of the RAM.
    """
    if ask is None:
        if (platform.system(), platform.machine()) != ("Darwin", "arm64"):
            return ()
        ask = sysctl
    name = ask("machdep.cpu.brand_string")
    limit = ask("iogpu.wired_limit_mb") or ""
    wired = int(limit) << 20 if limit.isdecimal() and int(limit) > 0 else None
    return (
        Gpu(
            id="apple-0",
            index=0,
            name=clean_line(name or "Apple GPU", 120),
            backend="metal",
            total=wired,
            integrated=True,
        ),
    )


def sysctl(key: str) -> str | None:
    """A figure of macOS's kernel; None where there is no such figure, or no macOS."""
    try:
        done = subprocess.run(["sysctl", "-n", key], capture_output=True, text=True, timeout=2, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
