"""Bandwidth by name: the right card of a family, and none rather than a relative's."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from appliance.planning.speed import table as bandwidth_table
from appliance.planning.speed.bandwidth import _NOISE, _words, device_bandwidth, host_bandwidth
from appliance.planning.speed.table import GB_PER_S, VARIANTS


@pytest.mark.parametrize(
    ("description", "gb_per_s"),
    [
        ("NVIDIA GeForce RTX 4060", 272),
        ("NVIDIA GeForce RTX 4060 Ti", 288),
        ("NVIDIA GeForce RTX 4060 Laptop GPU", 256),
        ("NVIDIA GeForce RTX 4070", 480),
        ("NVIDIA GeForce RTX 4070 SUPER", 504),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", 672),
        ("NVIDIA GeForce RTX 2080 Super with Max-Q Design", 352),
        ("NVIDIA GeForce RTX 3050 6GB Laptop GPU", 168),
        ("NVIDIA GeForce RTX 3060", 360),
        ("NVIDIA GeForce RTX 5060 Ti 16GB", 448),
        ("Quadro RTX 4000", 416),
        ("NVIDIA RTX A4000", 448),
        ("NVIDIA RTX 4000 Ada Generation", 360),
        ("NVIDIA RTX 4000 SFF Ada Generation", 280),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 1792),
        ("NVIDIA A100-SXM4-80GB", 2039),
        ("NVIDIA A100 80GB PCIe", 1935),
        ("NVIDIA H100 80GB HBM3", 3350),
        ("NVIDIA H100 PCIe", 2039),
        ("NVIDIA H200", 4800),
        ("Tesla T4", 320),
        ("AMD Radeon RX 7900 XTX (RADV NAVI31)", 960),
        ("AMD Radeon RX 7900 XT (RADV NAVI31)", 800),
        ("AMD Radeon RX 7900 GRE", 576),
        ("AMD Radeon PRO W7900", 864),
        ("AMD Radeon 780M Graphics (RADV PHOENIX)", 83),
        ("AMD Radeon Graphics (RADV RENOIR)", 51),
        ("Radeon 8060S Graphics (RADV GFX1151)", 256),
        ("AMD Instinct MI60 / MI50", 1024),
        ("Intel(R) Arc(TM) A770 Graphics", 512),
        ("Intel(R) Arc(tm) B580 Graphics (BMG G21)", 456),
        ("Intel(R) Iris(R) Xe Graphics (TGL GT2)", 51),
        ("Apple M2", 100),
        ("Apple M2 Ultra", 800),
        ("Apple M4 Pro", 273),
    ],
)
def test_a_name_finds_its_own_card(description: str, gb_per_s: float) -> None:
    assert device_bandwidth(description, "vulkan") == pytest.approx(gb_per_s * 1e9)


@pytest.mark.parametrize(
    "description",
    [
        "",
        "llvmpipe (LLVM 15.0.7, 256 bits)",
        "Apple M9",
        "Apple M9 Max",
        "Apple Paravirtual device",
        "NVIDIA GeForce RTX 4050 Ti",
        "NVIDIA GeForce RTX 5060 SUPER",
        "NVIDIA GeForce RTX 3090 Laptop GPU",
        "NVIDIA RTX 4060 Ada Generation",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "GRID A100-10C",
        "AMD Radeon RX 9070 XTX",
        "AMD Radeon(TM) Graphics",
        "NVIDIA Graphics Device",
    ],
)
def test_a_name_that_is_not_in_the_table_gets_nothing_from_a_relative(description: str) -> None:
    assert device_bandwidth(description, "cuda") is None


def test_a_processor_is_no_device() -> None:
    assert device_bandwidth("Apple M2", "cpu") is None


def test_every_key_is_found_by_its_own_name() -> None:
    """No entry is shadowed by another, longer or shorter."""
    for key, gb_per_s in GB_PER_S.items():
        assert device_bandwidth(key, "vulkan") == pytest.approx(gb_per_s * 1e9), key


def test_every_key_is_written_as_names_are_read() -> None:
    for key in GB_PER_S:
        assert " ".join(_words(key)) == key
    assert not VARIANTS & _NOISE


def test_no_key_stands_twice() -> None:
    text = Path(bandwidth_table.__file__).read_text()
    keys = [part.split('"')[1] for part in text.replace("\n", " ").split(",") if '": ' in part]
    assert len(keys) >= len(GB_PER_S)
    assert [key for key, n in Counter(keys).items() if n > 1] == []


def test_figures_are_gigabytes_of_real_memory() -> None:
    """From a single channel of laptop memory to eight stacks of HBM3E."""
    assert 30 < min(GB_PER_S.values()) < max(GB_PER_S.values()) <= 8_000


def test_ram_is_limited_by_memory_and_by_cores() -> None:
    two, many = host_bandwidth("AMD Ryzen 5 5600 6-Core Processor", 2), host_bandwidth("AMD Ryzen 5 5600", 6)
    assert two is not None
    assert many is not None
    assert two[0] < many[0] < 51.2e9, "two channels of DDR4-3200 give no more"
    assert host_bandwidth("AMD Ryzen 5 5600", 64) == many
    assert many[1] == "rule"


def test_memory_follows_the_processor_where_its_name_tells() -> None:
    names = (
        "Raspberry Pi 5 Model B Rev 1.0",
        "Intel(R) Core(TM) i7-10700",
        "AMD Ryzen 9 7950X",
        "Apple M4 Max",
    )
    found = [host_bandwidth(name, 16) for name in names]
    speeds = [one[0] for one in found if one is not None]
    assert speeds == sorted(set(speeds))
    assert len(speeds) == len(names)


def test_the_cores_of_an_apple_chip_get_a_part_of_its_data_sheet() -> None:
    found = host_bandwidth("Apple M1", 8)
    assert found is not None
    assert found[1] == "table"
    assert found[0] < 68e9


@pytest.mark.parametrize("cores", [None, 0, -1])
def test_unknown_cores_give_no_bandwidth(cores: int | None) -> None:
    assert host_bandwidth("AMD Ryzen 5 5600", cores) is None


def test_an_unknown_processor_counts_as_a_slow_one() -> None:
    unknown, known = host_bandwidth(None, 4), host_bandwidth("AMD Ryzen 5 5600", 4)
    assert unknown is not None
    assert known is not None
    assert unknown[0] < known[0]
