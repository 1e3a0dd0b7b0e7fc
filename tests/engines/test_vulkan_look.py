"""What Vulkan itself says of an engine's devices, also when it hangs, crashes or is not there."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from appliance import settings
from appliance.engines import Build, discover, discovery, vulkan
from appliance.engines.vulkan import Physical, refined
from appliance.planning import DeviceMemory
from appliance.units import GIB, MIB
from tests.engines.binaries import llama_server

_ASK = [sys.executable, "-I", "-S", str(discovery.CHILDREN / "vulkan.py")]
_XTX = "AMD Radeon RX 7900 XTX (RADV NAVI31)"
_APU = "AMD Radeon Graphics (RADV RAPHAEL)"
_PIPE = "llvmpipe (LLVM 15.0.6, 256 bits)"


@pytest.fixture(autouse=True)
def no_look_is_remembered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    vulkan._seen.clear()
    monkeypatch.delenv("GGML_VK_VISIBLE_DEVICES", raising=False)
    yield
    vulkan._seen.clear()


def _physical(name: str, bus: int, kind: str = "discrete", largest: int | None = 4 * GIB - 1) -> Physical:
    return Physical(name, kind, largest, f"0000:0{bus}:00.0", f"{bus:032x}")


def _listed(*names: str) -> tuple[DeviceMemory, ...]:
    return tuple(DeviceMemory(f"Vulkan{i}", name, "vulkan", GIB, GIB) for i, name in enumerate(names))


_FOUND = (
    _physical(_APU, 1, "integrated", GIB),
    _physical(_XTX, 2),
    _physical(_XTX, 3),
    _physical(_PIPE, 4, "cpu", 128 * MIB),
)


def test_each_device_gets_its_kind_its_limit_and_its_address() -> None:
    devices = refined(_listed(_APU, _XTX, _XTX), _FOUND)
    assert [(d.integrated, d.max_tensor, d.pci) for d in devices] == [
        (True, GIB, "0000:01:00.0"),
        (False, 4 * GIB - 1, "0000:02:00.0"),
        (False, 4 * GIB - 1, "0000:03:00.0"),
    ]


def test_a_device_of_kind_cpu_is_software_whatever_its_name() -> None:
    strange = Physical("A CPU of 2031", "cpu", 128 * MIB, None, "")
    (device,) = refined(_listed(strange.name), (strange,))
    assert (device.software, device.integrated, device.max_tensor) == (True, None, 128 * MIB)


@pytest.mark.parametrize(
    ("visible", "buses"),
    [("2,1", [3, 2]), ("1 2", [2, 3]), ("2", [3]), (" 0,2 ,1", [3, 2])],
)
def test_the_users_choice_of_devices_is_their_order(
    visible: str, buses: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GGML_VK_VISIBLE_DEVICES", visible)
    devices = refined(_listed(*[_XTX] * len(buses)), _FOUND)
    assert [device.pci for device in devices] == [f"0000:0{bus}:00.0" for bus in buses]


def test_equal_names_that_cannot_be_told_apart_get_the_smaller_limit_and_no_address() -> None:
    found = (_physical(_XTX, 2), _physical(_XTX, 3, largest=2 * GIB))
    (one,) = refined(_listed(_XTX), found)
    assert (one.max_tensor, one.pci, one.integrated) == (2 * GIB, None, False)
    (odd,) = refined(_listed(_XTX), (*found, _physical(_XTX, 4, "virtual")))
    assert odd.integrated is None


def test_a_card_that_two_drivers_show_under_one_name_counts_once() -> None:
    twice = (_physical(_XTX, 2), _physical(_XTX, 2), _physical(_XTX, 3))
    assert [d.pci for d in refined(_listed(_XTX, _XTX), twice)] == ["0000:02:00.0", "0000:03:00.0"]


def test_devices_of_other_backends_and_unknown_names_stay_as_they_are() -> None:
    cuda = DeviceMemory("CUDA0", _XTX, "cuda", GIB, GIB)
    unknown = _listed("Something of 2031")[0]
    assert refined((cuda, unknown), _FOUND) == (cuda, unknown)


@pytest.mark.parametrize(
    "text",
    ["", "Segmentation fault", "{}", '[{"name": "x"}]', '[{"name": "x", "kind": "cpu", "largest": "y"}]'],
)
def test_an_answer_that_is_no_list_is_nothing(text: str) -> None:
    assert vulkan.from_json(text) == ()


def test_names_are_cleaned_as_the_engines_are() -> None:
    row = {"name": "A\x1b[31mB", "kind": "discrete", "largest": 5, "pci": None, "uuid": "u"}
    assert vulkan.from_json(f"noise of a driver\n{json.dumps([row])}\n")[0].name == "A[31mB"


def _engine(folder: Path, listed: str = f"Vulkan0: {_XTX}") -> str:
    """A program that lists one device."""
    program = folder / "llama-server"
    program.write_text(
        f"#!/bin/sh\necho 'version: 10434 (fake)'\necho '  {listed} (24576 MiB, 20000 MiB free)'\n"
    )
    program.chmod(0o755)
    return str(program)


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Writes what stands in for the child that asks Vulkan, for faults that no driver commits on demand."""
    folder = tmp_path / "children"
    folder.mkdir()
    monkeypatch.setattr(discovery, "CHILDREN", folder)

    def write(code: str) -> None:
        (folder / "vulkan.py").write_text(code)

    return write


async def _look(server: str) -> DeviceMemory:
    build = await discovery._llama_server(server, "llama-server")
    assert build.usable
    (device,) = build.devices
    return device


@pytest.mark.parametrize(
    "fault",
    ["import os; os.abort()", "raise OSError('libvulkan.so.1')", "print('[')", "import time; time.sleep(60)"],
)
async def test_a_fault_leaves_the_limit_unknown_and_is_not_waited_for_twice(
    fault: str, child: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "VULKAN_S", 1.0)
    child(f"open({str(tmp_path / 'asked')!r}, 'a').write('x')\n{fault}\n")
    server = _engine(tmp_path)
    for _ in range(2):
        began = time.monotonic()
        device = await _look(server)
        assert (device.max_tensor, device.integrated, device.free) == (None, None, 20000 * MIB)
        assert time.monotonic() - began < 10
    assert (tmp_path / "asked").read_text() == "x"


async def test_a_card_that_is_plugged_in_later_is_asked_for(
    child: Callable[[str], None], tmp_path: Path
) -> None:
    row = {"name": _XTX, "kind": "discrete", "largest": 5, "pci": None, "uuid": "u"}
    child(f"print({json.dumps(json.dumps([row]))})")
    assert (await _look(_engine(tmp_path, "Vulkan0: Another"))).max_tensor is None
    assert (await _look(_engine(tmp_path))).max_tensor == 5


async def test_vulkan_is_not_asked_where_no_engine_lists_its_devices(
    child: Callable[[str], None], tmp_path: Path
) -> None:
    child(f"open({str(tmp_path / 'asked')!r}, 'w')")
    assert (await _look(_engine(tmp_path, "CUDA0: RTX"))).backend == "cuda"
    assert not (tmp_path / "asked").exists()


@pytest.mark.vulkan
async def test_the_real_driver_tells_what_the_engines_list_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GGML_VK_VISIBLE_DEVICES", "0")
    (device,) = (await _real()).devices
    assert device.description.startswith("llvmpipe")
    assert (device.max_tensor, device.software, device.integrated) == (128 * MIB, True, None)


@pytest.mark.vulkan
async def test_a_loader_without_drivers_leaves_the_limit_unknown(tmp_path: Path) -> None:
    code, text = await discovery.ask(
        _ASK,
        env={"VK_ICD_FILENAMES": str(tmp_path / "none.json"), "VK_DRIVER_FILES": str(tmp_path / "none.json")},
    )
    assert code != 0 or vulkan.from_json(text) == ()


@pytest.mark.vulkan
async def test_the_look_costs_little() -> None:
    """Its own time, start of the process included: the best of some, since the machine is shared."""
    times = []
    for _ in range(5):
        began = time.monotonic()
        code, _ = await discovery.ask(_ASK)
        times.append(time.monotonic() - began)
        assert code == 0
    assert min(times) < 0.5


async def _real() -> Build:
    builds = await discover(settings.Engine(llama_server=str(llama_server())))
    return next(build for build in builds if build.kind == "llama-server")
