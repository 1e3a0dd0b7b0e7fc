"""The kernel's gpu_metrics as C structs (kgd_pp_interface.h): the compiler's rules place the fields."""

from __future__ import annotations

import ctypes
from typing import Any

_u16, _u32, _u64 = ctypes.c_uint16, ctypes.c_uint32, ctypes.c_uint64
_HEADER = [
    ("structure_size", _u16),
    ("format_revision", ctypes.c_uint8),
    ("content_revision", ctypes.c_uint8),
]


def _words(*names: str) -> list[tuple[str, Any]]:
    return [(name, _u16) for name in names]


_V1 = [
    *_HEADER,
    *_words("edge", "hotspot", "mem", "vrgfx", "vrsoc", "vrmem"),
    ("activity", _u16 * 3),
    ("socket_power", _u16), ("energy", _u64), ("system_clock", _u64), ("average_clocks", _u16 * 7),
    ("current_clocks", _u16 * 7), ("throttle_status", _u32), ("fan_speed", _u16), ("pcie", _u16 * 2),
    ("padding", _u16), ("activity_acc", _u32 * 2), ("hbm", _u16 * 4),
]  # fmt: skip
_V1_3 = [
    *_V1, ("firmware_timestamp", _u64), ("voltages", _u16 * 3), ("padding1", _u16),
    ("indep_throttle_status", _u64),
]  # fmt: skip
_V2 = [
    *_HEADER,
    ("gfx", _u16), ("soc", _u16), ("core", _u16 * 8), ("l3", _u16 * 2), ("gfx_activity", _u16),
    ("mm_activity", _u16), ("system_clock", _u64), ("powers", _u16 * 4), ("core_power", _u16 * 8),
    ("average_clocks", _u16 * 6), ("current_clocks", _u16 * 6), ("coreclk", _u16 * 8), ("l3clk", _u16 * 2),
    ("throttle_status", _u32), ("fan_pwm", _u16), ("padding", _u16 * 3),
]  # fmt: skip
_V2_2 = [*_V2, ("indep_throttle_status", _u64)]
_V2_3 = [*_V2_2, ("average_temperatures", _u16 * 12)]
_V2_4 = [*_V2_3, ("voltages_and_currents", _u16 * 6)]
_V3_0 = [
    *_HEADER,
    ("gfx", _u16), ("soc", _u16), ("core", _u16 * 16), ("skin", _u16), ("activity", _u16 * (1 + 1 + 8 + 16)),
    ("bandwidths", _u16 * 4), ("system_clock", _u64), ("socket_power", _u32), ("ipu_power", _u16),
    ("apu_power", _u32), ("gfx_power", _u32), ("dgpu_power", _u32), ("all_core_power", _u32),
    ("core_power", _u16 * 16), ("sys_power", _u16), ("stapm", _u16 * 2), ("clocks", _u16 * 8),
    ("coreclk", _u16 * 16), ("core_maxfreq", _u16), ("gfx_maxfreq", _u16), ("prochot", _u32), ("spl", _u32),
    ("fppt", _u32), ("sppt", _u32), ("thm_core", _u32), ("thm_gfx", _u32), ("thm_soc", _u32), ("alpha", _u32),
]  # fmt: skip
_FIELDS = {
    (1, 1): _V1,
    (1, 3): _V1_3,
    (2, 1): _V2,
    (2, 2): _V2_2,
    (2, 3): _V2_3,
    (2, 4): _V2_4,
    (3, 0): _V3_0,
}
VERSIONS = tuple(_FIELDS)


def table(version: tuple[int, int], *, filler: int = 0, **values: int) -> bytes:
    """A table of that version; every other byte is `filler`, as the driver's own 0xff before it writes."""
    made: Any = type("Table", (ctypes.Structure,), {"_fields_": _FIELDS[version]})
    one = made.from_buffer(bytearray([filler]) * ctypes.sizeof(made))
    one.structure_size, one.format_revision, one.content_revision = ctypes.sizeof(made), *version
    for name, value in values.items():
        setattr(one, name, value)
    return bytes(one)
