"""The kernel's binary table of an AMD GPU: known versions are read, all else is unknown."""

from __future__ import annotations

import pytest

from appliance.hardware.sensors.gpu_metrics import Throttling, parse, reasons
from tests.hardware.amd_tables import VERSIONS, table

_CAP, _SW, _HW = 0x4, 0x20, 0x40
_STATUS = ((1, 3), (2, 2), (2, 3), (2, 4))


@pytest.mark.parametrize("version", _STATUS)
def test_the_status_is_found_in_each_version(version: tuple[int, int]) -> None:
    raw = table(version, filler=0x5A, indep_throttle_status=1 << 35 | 1)
    assert parse(raw) == Throttling(bits=1 << 35 | 1)


@pytest.mark.parametrize("version", _STATUS)
def test_a_status_that_the_driver_did_not_write_is_unknown(version: tuple[int, int]) -> None:
    assert parse(table(version, filler=0xFF)) == Throttling()
    assert parse(table(version)) == Throttling(bits=0)


@pytest.mark.parametrize("version", [(1, 1), (2, 1)])
def test_versions_whose_bits_depend_on_the_asic_tell_nothing(version: tuple[int, int]) -> None:
    assert parse(table(version, throttle_status=0xFFFF)) == Throttling()


def test_the_counters_of_version_3_are_found() -> None:
    raw = table((3, 0), filler=0x5A, prochot=1, spl=2, fppt=3, sppt=4, thm_core=5, thm_gfx=6, thm_soc=7)
    assert parse(raw) == Throttling(residency=(1, 2, 3, 4, 5, 6, 7))
    assert parse(table((3, 0), filler=0xFF)) == Throttling()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_table_cut_short_or_longer_tells_nothing(version: tuple[int, int]) -> None:
    raw = table(version, filler=0x11)
    for cut in (0, 1, 3, 4, len(raw) // 2, len(raw) - 1):
        assert parse(raw[:cut]) == Throttling()
    assert parse(raw + b"\0") == Throttling()


@pytest.mark.parametrize(
    ("format_revision", "content_revision"), [(1, 4), (1, 9), (2, 9), (3, 1), (4, 0), (0, 3)]
)
def test_an_unknown_version_of_a_known_size_tells_nothing(
    format_revision: int, content_revision: int
) -> None:
    for version in VERSIONS:
        raw = bytearray(table(version, filler=0x11))
        raw[2:4] = bytes((format_revision, content_revision))
        assert parse(bytes(raw)) == Throttling()


@pytest.mark.parametrize(
    ("bits", "mask"),
    [
        ((), 0), ((0,), _CAP), ((3,), _CAP), ((4, 5, 6), _CAP), ((16,), _CAP), ((23,), _CAP),
        ((32,), _SW), ((34,), _SW), ((35,), _SW), ((37,), _SW), ((38, 40), _SW), ((43,), _SW),
        ((44,), _HW), ((46,), _HW), ((47,), _HW), ((0, 35, 47), _CAP | _SW | _HW), ((56, 57), 0), ((63,), 0),
    ],
)  # fmt: skip
def test_bits_become_reasons(bits: tuple[int, ...], mask: int) -> None:
    now = Throttling(bits=sum(1 << bit for bit in bits))
    assert reasons(now, None, near_hot_spot=False) == mask


def test_the_hot_spot_is_believed_only_near_its_limit() -> None:
    """Navi 31 and 48 set the bit at idle and 40 degrees."""
    now = Throttling(bits=1 << 36 | 1)
    assert reasons(now, None, near_hot_spot=False) == _CAP
    assert reasons(now, None, near_hot_spot=True) == _CAP | _HW


def test_counters_become_reasons_when_they_rise() -> None:
    before = Throttling(residency=(10, 10, 10, 10, 10, 10, 10))
    for place, mask in enumerate((_HW, _CAP, _CAP, _CAP, _SW, _SW, _SW)):
        counts = [10] * 7
        counts[place] += 1
        assert reasons(Throttling(residency=tuple(counts)), before, near_hot_spot=False) == mask
    assert reasons(before, before, near_hot_spot=False) == 0
    assert reasons(before, None, near_hot_spot=False) is None
    assert reasons(before, Throttling(bits=0), near_hot_spot=False) is None


def test_counters_that_fell_have_begun_anew() -> None:
    before, now = Throttling(residency=(9,) * 7), Throttling(residency=(1,) * 7)
    assert reasons(now, before, near_hot_spot=False) == 0


def test_nothing_known_is_no_reason_known() -> None:
    assert reasons(Throttling(), Throttling(bits=1), near_hot_spot=True) is None
