"""A machine in the user's words."""

from __future__ import annotations

import pytest

from appliance.errors import UsageError
from appliance.operations.plans.described import MOST_GPUS, available, described
from appliance.planning import DeviceMemory
from appliance.units import GIB, MIB


def one(spec: str, ram: str | None = "32GiB") -> DeviceMemory:
    found = described([spec], ram)
    assert found is not None
    return found.devices[0]


def test_nothing_described_is_no_machine() -> None:
    assert described([], None) is None


def test_ram_alone_is_a_machine_without_a_gpu() -> None:
    found = described([], "16GiB")
    assert found is not None
    assert found.devices == ()
    assert found.host.total == 16 * GIB
    assert found.host.bandwidth is not None


def test_a_gpu_alone_leaves_the_ram_unknown() -> None:
    found = described(["8GiB"], None)
    assert found is not None
    assert (found.host.total, found.host.available) == (None, None)


def test_the_first_card_drives_the_display_and_every_driver_keeps_a_share() -> None:
    found = described(["8GiB", "8GiB"], "32GiB")
    assert found is not None
    first, second = (device.free or 0 for device in found.devices)
    assert second - first == 512 * MIB
    assert 7_900 * MIB < second < 8_192 * MIB


def test_devices_are_named_in_order() -> None:
    found = described(["8GiB,RTX 4060", "12GiB"], "32GiB")
    assert found is not None
    assert [(d.name, d.description) for d in found.devices] == [
        ("GPU0", "RTX 4060"),
        ("GPU1", "12.00 GiB card"),
    ]


@pytest.mark.parametrize("spec", ["4GiB,free=2900MiB", "4G, free=2900MiB", " 4GB ,FREE=2900MiB "])
def test_free_memory_can_be_given_and_memory_is_sold_in_binary_units(spec: str) -> None:
    assert (one(spec).total, one(spec).free) == (4 * GIB, 2_900 * MIB)


@pytest.mark.parametrize(
    ("spec", "backend"),
    [
        ("8GiB", "cuda"), ("8GiB,RTX 4060", "cuda"), ("24GiB,RX 7900 XTX", "rocm"),
        ("16GiB,Arc A770", "vulkan"),
        ("8GiB,RX 7600,vulkan", "vulkan"), ("8GiB,vulkan", "vulkan"), ("16GiB,unified", "metal"),
        ("16GiB,integrated", "vulkan"), ("64GiB,unified,rocm", "rocm"),
    ],
)  # fmt: skip
def test_the_backend_follows_from_the_card_unless_it_is_said(spec: str, backend: str) -> None:
    assert one(spec, None).backend == backend


def test_a_name_gives_the_speed_of_its_memory_and_so_does_a_figure() -> None:
    assert one("24GiB,RTX 4090").bandwidth == 1008e9
    assert one("24GiB,NVIDIA GeForce RTX 4090").bandwidth == 1008e9
    assert one("8GiB,272GB/s").bandwidth == one("8GiB,272 gb/s").bandwidth == 272e9
    assert one("8GiB").bandwidth is None


def test_a_mac_shares_its_memory_and_offers_a_part_of_it() -> None:
    found = described(["16GiB,M2"], None)
    assert found is not None
    device = found.devices[0]
    assert (device.integrated, device.backend, device.bandwidth) == (True, "metal", 100e9)
    assert found.host.total == 16 * GIB
    assert device.total == 16 * GIB * 2 // 3
    large = described(["64GiB,M3 Max"], None)
    assert large is not None
    assert large.devices[0].total == 48 * GIB


def test_an_integrated_gpu_takes_its_part_of_the_ram() -> None:
    found = described(["8GiB,RTX 4060", "8GiB,integrated"], "16GiB")
    assert found is not None
    assert found.devices[1].integrated
    assert found.devices[1].total == 8 * GIB
    assert found.host.total == 16 * GIB
    assert one("16GiB,integrated", "16GiB").free == available(16 * GIB)


@pytest.mark.parametrize("total", [1, 4, 8, 16, 32, 128])
def test_a_desktop_takes_some_ram_and_leaves_at_least_a_quarter(total: int) -> None:
    left = available(total * GIB)
    assert total * GIB // 4 <= left < total * GIB
    assert total * GIB - left <= 6 * GIB


@pytest.mark.parametrize(
    ("gpus", "ram", "words"),
    [
        (["banana"], None, "banana"),
        ([""], None, "--gpu"),
        (["8"], None, "not a size that a machine has"),
        (["8PiB"], None, "unknown unit"),
        (["9000GiB"], None, "not a size"),
        ([], "12MiB", "--ram"),
        ([], "lots", "--ram"),
        (["8GiB,RTX 9999"], None, "RTX 9999"),
        (["8GiB,free=9GiB"], None, "more memory is free"),
        (["8GiB,free="], None, "free="),
        (["8GiB,0GB/s"], None, "0GB/s"),
        (["16GiB,unified"], "8GiB", "one unified memory"),
        (["16GiB,unified", "24GiB,unified"], None, "one unified memory"),
        (["8GiB"] * (MOST_GPUS + 1), None, "GPUs"),
        (["8GiB,\x1b[31mred"], None, "red"),
    ],
)
def test_nonsense_is_said_to_be_so_with_what_to_write_instead(
    gpus: list[str], ram: str | None, words: str
) -> None:
    with pytest.raises(UsageError) as caught:
        described(gpus, ram)
    assert words in caught.value.message
    assert caught.value.hint
    assert "\x1b" not in caught.value.message


def test_the_document_names_what_was_taken_to_be_there() -> None:
    found = described(["24GiB,RTX 4090"], "64GiB")
    assert found is not None
    document = found.to_json()
    assert document["ram"] == {"total": 64 * GIB, "available": 58 * GIB}
    assert document["gpus"][0]["name"] == "GPU0"
    assert document["gpus"][0]["total"] == 24 * GIB


@pytest.mark.parametrize(
    ("spec", "what"),
    [
        ("8GiB,RTX 4060,RTX 4090", "the card's name"),
        ("8GiB,free=7GiB,free=1GiB", "what is free"),
        ("8GiB,cuda,vulkan", "the backend"),
        ("8GiB,272GB/s,300GB/s", "the memory's speed"),
        ("8GiB,unified,integrated", "whose memory it is"),
    ],
)
def test_nothing_is_said_twice_of_a_card(spec: str, what: str) -> None:
    with pytest.raises(UsageError, match=f"says {what} twice") as caught:
        described([spec], None)
    assert "repeat --gpu" in (caught.value.hint or "")
