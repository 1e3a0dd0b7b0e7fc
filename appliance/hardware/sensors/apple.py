"""The GPU of Apple silicon, from the text of two programs of macOS that any user may run.

`ioreg` tells how busy the GPU is and what it holds of the RAM; `pmset -g therm` whether heat limits the
clocks. There is no temperature without root. Neither program is quick: the child's reader runs them seldom
and with a deadline.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from appliance.hardware.sensors.values import GpuSample

Run = Callable[[Sequence[str]], str | None]
"""Runs a program: what it wrote, or None where it failed or took too long."""

IOREG = ("ioreg", "-r", "-d", "1", "-w", "0", "-c", "IOAccelerator")
"""All accelerators below that class (`AGXAcceleratorG16G`), their lines not cut short."""
PMSET = ("pmset", "-g", "therm")
_SW_THERMAL = 0x20
_BUSY = re.compile(r'"Device Utilization %"\s*=\s*(\d+)')
_HELD = re.compile(r'"In use system memory"\s*=\s*(\d+)')
"""The key beside it, `In use system memory (driver)`, is another figure."""
_LIMIT = re.compile(r"CPU_Speed_Limit\s*=\s*(\d+)")


@dataclass(frozen=True, slots=True)
class Use:
    """How busy the GPU is (percent) and the bytes of RAM that it holds."""

    utilisation: float | None = None
    used: int | None = None


def use(text: str | None) -> Use:
    """What ioreg says, from the first accelerator that tells how busy it is."""
    for block in (text or "").split("+-o "):
        busy, held = _BUSY.search(block), _HELD.search(block)
        if busy is None and held is None:
            continue
        percent = float(busy[1]) if busy is not None else None
        return Use(
            percent if percent is not None and percent <= 100 else None,
            int(held[1]) if held is not None else None,
        )
    return Use()


def reasons(text: str | None) -> int | None:
    """Whether heat limits the clocks. "No thermal warning level has been recorded" is no figure: unknown."""
    found = _LIMIT.search(text or "")
    percent = int(found[1]) if found is not None else None
    if percent is None or percent > 100:
        return None
    return _SW_THERMAL if percent < 100 else 0


def look(blank: GpuSample, now: Use, why: int | None) -> GpuSample:
    """The sample. `total` stays what a user's limit makes it; the engine's list has it otherwise."""
    return replace(blank, utilisation=now.utilisation, used=now.used, reasons=why)
