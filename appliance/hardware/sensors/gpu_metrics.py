"""Why an AMD GPU's clocks are lowered: the kernel's binary table `gpu_metrics`, as far as its version tells.

The header has the size and the version (kgd_pp_interface.h). What is read of each:

| version | devices | read |
| --- | --- | --- |
| 1.3 | cards since RDNA | `indep_throttle_status`, whose bits are the same on each ASIC (amdgpu_smu.h) |
| 2.2, 2.3, 2.4 | APUs up to Zen 3 | the same |
| 3.0 | APUs of Strix and later | which of its counters of limits that held have risen since the last look |
| others | | nothing: their bits depend on the ASIC, or are not filled in |

The counters of 3.0 count the firmware's timer, whose rate nobody tells: they become bits and no times.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

_POWER_CAP, _SW_THERMAL, _HW_THERMAL = 0x4, 0x20, 0x40
"""Of `REASONS`."""
_STATUS_AT = {(1, 3): (120, 112), (2, 2): (128, 120), (2, 3): (152, 120), (2, 4): (168, 120)}
"""Size of the table and where its status stands, by version."""
_ALL_ONES = (1 << 64) - 1
"""The driver fills the table with ones first: nothing was written there."""
_HOTSPOT = 36
_BITS: dict[int, int] = (
    dict.fromkeys((*range(8), *range(16, 24)), _POWER_CAP)  # PPT, SPL, FPPT, SPPT; TDC, EDC, APCC
    | dict.fromkeys((32, 33, 34, 35, *range(37, 44)), _SW_THERMAL)  # GPU, core, memory, edge, SoC, VR, liquid
    | dict.fromkeys((_HOTSPOT, 44, 45, 46, 47), _HW_THERMAL)  # hot spot, VRHOT, PROCHOT
)
_RESIDENCY_SIZE, _RESIDENCY_AT = 264, 228
_RESIDENCY = (_HW_THERMAL, *(_POWER_CAP,) * 3, *(_SW_THERMAL,) * 3)
"""prochot; spl, fppt, sppt; thm_core, thm_gfx, thm_soc."""
_NO_COUNT = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Throttling:
    """What one table tells."""

    bits: int | None = None
    """Of `indep_throttle_status`."""
    residency: tuple[int, ...] | None = None


def parse(table: bytes) -> Throttling:
    """Read a table; one of another size or version than it says tells nothing."""
    if len(table) < 4:
        return Throttling()
    size, *version = struct.unpack_from("<HBB", table)
    if size != len(table):
        return Throttling()
    wanted, offset = _STATUS_AT.get((version[0], version[1]), (0, 0))
    if size == wanted:
        (bits,) = struct.unpack_from("<Q", table, offset)
        return Throttling(bits=None if bits == _ALL_ONES else bits)
    if tuple(version) == (3, 0) and size == _RESIDENCY_SIZE:
        counts = struct.unpack_from(f"<{len(_RESIDENCY)}I", table, _RESIDENCY_AT)
        return Throttling(residency=None if all(count == _NO_COUNT for count in counts) else counts)
    return Throttling()


def reasons(now: Throttling, before: Throttling | None, *, near_hot_spot: bool) -> int | None:
    """The mask of `REASONS`; None while it can't be told.

    The firmware of RDNA 3 and 4 sets the hot spot's bit nearly always, also at 40 degrees (MangoHud#1690,
    ROCm/rocm-systems#11781), so it counts only where the hot spot is near its limit.
    """
    if now.bits is not None:
        held = [bit for bit in range(64) if now.bits >> bit & 1 and (bit != _HOTSPOT or near_hot_spot)]
        return _mask(_BITS.get(bit, 0) for bit in held)
    if now.residency is None or before is None or before.residency is None:
        return None
    rose = zip(_RESIDENCY, now.residency, before.residency, strict=True)
    return _mask(reason for reason, count, earlier in rose if earlier < count != _NO_COUNT)


def _mask(found: Iterable[int]) -> int:
    mask = 0
    for reason in found:
        mask |= reason
    return mask
