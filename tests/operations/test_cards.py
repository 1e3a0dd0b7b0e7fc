"""Which of the driver's GPUs a device of the engine is."""

from __future__ import annotations

from appliance.hardware import Gpu
from appliance.operations.machine.cards import matched
from appliance.planning import DeviceMemory
from appliance.units import GIB

_3090 = "NVIDIA GeForce RTX 3090"


def _gpu(place: int, name: str = _3090, free: int | None = 20 * GIB, backend: str = "cuda") -> Gpu:
    uuid, pci = f"GPU-{place}{place}-aa", f"0000:0{place + 1}:00.0"
    return Gpu(uuid, place, name, backend, 24 * GIB, free, pci=pci)  # type: ignore[arg-type]


def _device(
    name: str, description: str = _3090, free: int | None = 20 * GIB, pci: str | None = None
) -> DeviceMemory:
    backend = name.rstrip("0123456789").lower()
    return DeviceMemory(name, description, backend, 24 * GIB, free, pci=pci)


def _places(devices: list[DeviceMemory], gpus: list[Gpu], **env: str) -> list[int | None]:
    found = matched(devices, gpus, env)
    return [None if gpu is None else gpus.index(gpu) for gpu in found]


def test_one_card_is_found_by_its_name() -> None:
    gpus = [_gpu(0, "NVIDIA GeForce GT 710"), _gpu(1)]
    assert _places([_device("CUDA0"), _device("CUDA1", "NVIDIA GeForce GT 710")], gpus) == [1, 0]


def test_a_name_that_goes_on_is_another_card() -> None:
    gpus = [_gpu(0, "NVIDIA GeForce RTX 3060"), _gpu(1, "NVIDIA GeForce RTX 3060 Ti")]
    ti = _device("Vulkan0", "NVIDIA GeForce RTX 3060 Ti")
    assert _places([ti], gpus) == [1]
    assert _places([ti, _device("Vulkan1", "NVIDIA GeForce RTX 3060")], gpus) == [1, 0]


def test_what_the_vulkan_driver_adds_in_parentheses_is_no_other_card() -> None:
    gpus = [
        _gpu(0, "AMD Radeon RX 7900 XT", backend="rocm"),
        _gpu(1, "AMD Radeon RX 7900 XTX", backend="rocm"),
    ]
    assert _places([_device("Vulkan0", "AMD Radeon RX 7900 XTX (RADV NAVI31)")], gpus) == [1]


def test_two_equal_cards_are_told_apart_by_address() -> None:
    gpus = [_gpu(0, free=20 * GIB), _gpu(1, free=4 * GIB)]
    swapped = [_device("Vulkan0", pci="0000:02:00.0"), _device("Vulkan1", pci="0000:01:00.0")]
    assert _places(swapped, gpus) == [1, 0]


def test_an_address_that_the_driver_does_not_know_is_no_card_of_the_same_name() -> None:
    assert _places([_device("Vulkan0", pci="0000:09:00.0")], [_gpu(0)]) == [None]


def test_two_equal_cards_without_an_address_are_told_apart_by_what_is_free() -> None:
    gpus = [_gpu(0, free=4 * GIB), _gpu(1, free=20 * GIB)]
    fastest_first = [_device("CUDA0", free=20 * GIB - 300_000_000), _device("CUDA1", free=4 * GIB)]
    assert _places(fastest_first, gpus) == [1, 0]


def test_equal_cards_with_equal_memory_keep_the_order() -> None:
    devices = [_device("CUDA0", free=20 * GIB - 5), _device("CUDA1", free=20 * GIB)]
    assert _places(devices, [_gpu(0, free=20 * GIB), _gpu(1, free=20 * GIB - 5)]) == [0, 1]


def test_one_of_two_equal_cards_that_the_user_chose_by_uuid() -> None:
    gpus, device = [_gpu(0), _gpu(1)], [_device("CUDA0")]
    assert _places(device, gpus, CUDA_VISIBLE_DEVICES="GPU-11") == [1]
    assert _places(device, gpus, CUDA_VISIBLE_DEVICES="GPU-11-aa,GPU-00-aa") == [1]


def test_numbers_of_cards_count_in_the_order_of_the_bus_only_when_cuda_does() -> None:
    gpus = [_gpu(0, free=20 * GIB), _gpu(1, free=4 * GIB)]
    device = [_device("CUDA0", free=20 * GIB)]
    assert _places(device, gpus, CUDA_VISIBLE_DEVICES="1", CUDA_DEVICE_ORDER="PCI_BUS_ID") == [1]
    assert _places(device, gpus, CUDA_VISIBLE_DEVICES="1") == [0]


def test_a_choice_that_contradicts_the_name_does_not_count() -> None:
    gpus = [_gpu(0), _gpu(1, "NVIDIA GeForce GT 710")]
    assert _places([_device("CUDA0")], gpus, CUDA_VISIBLE_DEVICES="GPU-11") == [0]


def test_the_only_card_of_a_vendor_needs_no_common_name() -> None:
    gpus = [
        _gpu(0, "Intel GPU (PCI 8086:4680)", None, "vulkan"),
        _gpu(1, "AMD GPU (PCI 1002:744c)", backend="rocm"),
    ]
    devices = [
        _device("Vulkan0", "AMD Radeon RX 7900 XTX (RADV NAVI31)"),
        _device("Vulkan1", "Intel(R) UHD Graphics 770 (ADL-S GT1)"),
    ]
    assert _places(devices, gpus) == [1, 0]
    two = [gpus[1], _gpu(2, "AMD GPU (PCI 1002:164e)", backend="rocm")]
    assert _places(devices[:1], two) == [None]


def test_a_device_made_of_the_cpu_is_no_card() -> None:
    software = DeviceMemory("Vulkan0", _3090, "vulkan", GIB, GIB, software=True)
    assert matched([software], [_gpu(0)], {}) == (None,)


def test_a_device_that_nothing_names_stays_alone() -> None:
    assert _places([_device("SYCL0", "Something of 2031")], [_gpu(0)]) == [None]
