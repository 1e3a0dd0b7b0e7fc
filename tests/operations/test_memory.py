"""Devices and RAM as a plan gets them: what others hold, what is ours, what is shared."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psutil
import pytest

from appliance import processes
from appliance.engines import pidfile
from appliance.hardware import Gpu, Machine, Program
from appliance.operations.machine import memory
from appliance.operations.machine.memory import NOTHING, Own
from appliance.paths import Paths
from appliance.planning import DeviceMemory
from appliance.units import GIB, MIB

_CARD = Gpu(
    "GPU-1",
    0,
    "NVIDIA GeForce RTX 4090",
    "cuda",
    24 * GIB,
    14 * GIB,
    9 * GIB,
    integrated=False,
    pci="0000:01:00.0",
    holders=(Program(10, "llama-server", 6 * GIB), Program(11, "firefox", 2 * GIB), Program(12, "Xorg", GIB)),
)
_LISTED = DeviceMemory("CUDA0", "NVIDIA GeForce RTX 4090", "cuda", 24 * GIB, 15 * GIB)
_MACHINE = Machine(
    gpus=(_CARD,), ram_total=64 * GIB, ram_available=40 * GIB, cores_physical=8, cpu_name="AMD Ryzen 9"
)


def _one(
    listed: DeviceMemory = _LISTED, gpu: Gpu | None = _CARD, running: Own = NOTHING, **more: Any
) -> DeviceMemory:
    machine = replace(_MACHINE, gpus=() if gpu is None else (gpu,), **more)
    return memory.devices((listed,), machine, running, {})[0]


def test_memory_of_other_programs_is_told_the_largest_first() -> None:
    held = _one().held
    assert [(h.name, h.pid, h.n_bytes) for h in held] == [
        ("llama-server", 10, 6 * GIB),
        ("firefox", 11, 2 * GIB),
        ("Xorg", 12, GIB),
    ]


def test_our_own_engine_is_no_other_program_and_is_found_by_its_pid() -> None:
    device = _one(running=Own(frozenset({10})))
    assert device.ours == 6 * GIB
    assert [holder.name for holder in device.held] == ["firefox", "Xorg"]


def test_where_the_driver_tells_no_sizes_nothing_is_counted_back() -> None:
    silent = replace(_CARD, holders=(Program(10, "a.exe", None), Program(11, "b.exe", None)))
    device = _one(gpu=silent, running=Own(frozenset({10})))
    assert (device.ours, [holder.n_bytes for holder in device.held]) == (0, [None])


def test_what_is_ours_is_never_more_than_what_is_taken() -> None:
    absurd = replace(_CARD, holders=(Program(10, "llama-server", 20 * GIB),))
    assert _one(gpu=absurd, running=Own(frozenset({10}))).ours == 10 * GIB


def test_at_most_eight_programs_are_named_and_ours_is_none_of_them() -> None:
    many = tuple(Program(10 + i, f"p{i}", (20 - i) * MIB) for i in range(12))
    device = _one(gpu=replace(_CARD, holders=many), running=Own(frozenset({10})))
    assert [holder.name for holder in device.held] == [f"p{i}" for i in range(1, 9)]


@pytest.mark.parametrize(
    ("engine", "driver", "free"), [(15, 14, 14), (12, 14, 12), (15, None, 15), (None, 14, 14)]
)
def test_free_memory_is_the_smaller_of_what_engine_and_driver_say(
    engine: int | None, driver: int | None, free: int
) -> None:
    listed = replace(_LISTED, free=None if engine is None else engine * GIB)
    assert _one(listed, replace(_CARD, free=None if driver is None else driver * GIB)).free == free * GIB


def test_a_card_with_memory_of_its_own_is_not_integrated_and_has_the_bandwidth_of_its_data_sheet() -> None:
    device = _one()
    assert device.integrated is False
    assert device.bandwidth == pytest.approx(1008e9, rel=0.01)


def test_an_address_is_passed_on() -> None:
    assert _one().pci == "0000:01:00.0"


def test_grace_blackwell_shares_the_ram_though_the_engine_lists_a_card() -> None:
    gpu = Gpu("GPU-2", 0, "NVIDIA GB10", "cuda", holders=(Program(10, "llama-server", 30 * GIB),))
    listed = DeviceMemory("CUDA0", "NVIDIA GB10", "cuda", 120 * GIB, 110 * GIB, integrated=False)
    device = _one(listed, gpu, Own(frozenset({10})), ram_total=121 * GIB, ram_available=80 * GIB)
    assert (device.integrated, device.free, device.apart) == (True, 80 * GIB, 0)
    assert device.ours == 30 * GIB
    contained = _one(listed, gpu, ram_total=16 * GIB, ram_available=12 * GIB)
    assert (contained.integrated, contained.free) == (True, 12 * GIB)
    small = replace(listed, total=8 * GIB)
    assert _one(small, gpu, ram_total=121 * GIB).integrated is False


def test_a_jetson_is_not_on_the_bus_and_lists_the_ram() -> None:
    listed = DeviceMemory("CUDA0", "Orin", "cuda", 62_800 * MIB, 50 * GIB)
    assert _one(listed, None, ram_total=62_841 * MIB, ram_available=40 * GIB).integrated is True
    assert _one(replace(listed, total=8 * GIB), None, ram_total=62_841 * MIB).integrated is None


def test_a_card_of_the_size_of_the_ram_stays_a_card_when_the_driver_tells_its_memory() -> None:
    listed = replace(_LISTED, total=24 * GIB)
    assert _one(listed, ram_total=24 * GIB, ram_available=10 * GIB).integrated is False


def test_a_card_that_sleeps_is_not_taken_for_ram() -> None:
    asleep = replace(_CARD, total=None, free=None, used=None, integrated=None, asleep=True, holders=())
    assert _one(gpu=asleep, ram_total=24 * GIB).integrated is None


def test_apple_silicon_shares_what_metal_says_within_what_the_ram_has() -> None:
    gpu = Gpu("apple-0", 0, "Apple M3 Max", "metal", integrated=True)
    listed = DeviceMemory("MTL0", "Apple M3 Max", "metal", 27 * GIB, 27 * GIB, integrated=True)
    roomy = _one(listed, gpu, ram_total=36 * GIB, ram_available=30 * GIB)
    assert (roomy.integrated, roomy.total, roomy.free, roomy.max_tensor) == (True, 27 * GIB, 27 * GIB, None)
    assert _one(listed, gpu, ram_total=36 * GIB, ram_available=9 * GIB).free == 9 * GIB


def test_the_part_of_an_apus_memory_that_was_set_aside_is_no_ram() -> None:
    name = "AMD Radeon 8060S"
    gpu = Gpu("amd-1", 0, name, "rocm", 112 * GIB, 108 * GIB, 4 * GIB, integrated=True, apart=94 * GIB)
    listed = DeviceMemory("Vulkan0", f"{name} (RADV GFX1151)", "vulkan", 112 * GIB, 108 * GIB)
    device = _one(listed, gpu, ram_total=31 * GIB, ram_available=10 * GIB)
    assert (device.integrated, device.free, device.apart) == (True, 104 * GIB, 94 * GIB)


def test_without_a_data_sheet_an_integrated_device_reads_as_fast_as_the_ram() -> None:
    listed = DeviceMemory(
        "Vulkan0", "Intel(R) Nothing of 2031", "vulkan", 16 * GIB, 12 * GIB, integrated=True
    )
    device = _one(listed, None)
    assert device.bandwidth is not None
    assert device.bandwidth == memory.host(_MACHINE, NOTHING, ()).bandwidth
    assert _one(replace(listed, integrated=None), None).bandwidth is None


def test_a_device_made_of_the_cpu_is_left_as_it_is() -> None:
    listed = DeviceMemory(
        "Vulkan0", "llvmpipe", "vulkan", 2 * GIB, 2 * GIB, software=True, max_tensor=128 * MIB
    )
    assert _one(listed) == listed


def test_ram_of_the_running_engine_counts_back_also_what_its_device_takes_of_it() -> None:
    machine = replace(_MACHINE, ram_available=40 * GIB)
    shared = DeviceMemory(
        "V", "d", "vulkan", 60 * GIB, 30 * GIB, integrated=True, ours=9 * GIB, apart=2 * GIB
    )
    card = DeviceMemory("C", "d", "cuda", 24 * GIB, 10 * GIB, integrated=False, ours=9 * GIB)
    assert memory.host(machine, Own(frozenset({1}), 3 * GIB), (shared, card)).ours == 10 * GIB
    assert memory.host(machine, Own(frozenset({1}), 90 * GIB), ()).ours == 24 * GIB
    assert memory.host(machine, NOTHING, ()).ours == 0


_ALLOCATE = "import sys\nkept = bytearray(64 << 20)\nprint(flush=True)\nsys.stdin.read()"
_WRAPPED = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {_ALLOCATE!r}])"


@pytest.fixture(params=[_ALLOCATE, _WRAPPED], ids=["engine", "wrapper"])
def engine(request: pytest.FixtureRequest, paths: Paths) -> Iterator[subprocess.Popen[bytes]]:
    """A process with 64 MiB of its own and a pid file, alone or below a wrapper."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", request.param], **pipes) as child:  # type: ignore[call-overload]
        assert child.stdout.readline() == b"\n"
        note = {
            "pid": child.pid,
            "started": processes.start_time(child.pid),
            "ticks": processes.start_ticks(child.pid),
        }
        folder = pidfile.folder(paths)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{child.pid}.json").write_text(json.dumps(note))
        yield child
        child.stdin.close()


def test_the_running_engine_is_known_by_its_pid_file_also_below_a_wrapper(
    engine: subprocess.Popen[bytes], paths: Paths
) -> None:
    own = memory.own(paths)
    assert engine.pid in own.pids
    assert own.pids == {engine.pid, *(child.pid for child in psutil.Process(engine.pid).children())}
    assert 64 * MIB <= own.ram < 200 * MIB


def test_an_engine_that_ended_or_whose_pid_is_another_process_is_not_ours(paths: Paths) -> None:
    folder = pidfile.folder(paths)
    folder.mkdir(parents=True, exist_ok=True)
    me = psutil.Process().pid
    (folder / "1.json").write_text(json.dumps({"pid": me, "started": 1.0, "ticks": 1}))
    (folder / "2.json").write_text("broken")
    (folder / "3.json").write_text(json.dumps({"pid": 1 << 30, "started": 1.0, "ticks": None}))
    assert memory.own(paths) == NOTHING


def test_without_a_home_nothing_is_ours() -> None:
    assert memory.own(None) == NOTHING


def test_files_that_a_process_maps_are_not_its_own_memory(tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("model") / "weights"
    file.write_bytes(bytes(48 * MIB))
    code = (
        "import mmap, sys\nf = open(sys.argv[1], 'rb')\nm = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)\n"
        "total = sum(m[i] for i in range(0, len(m), 4096))\nprint(flush=True)\nsys.stdin.read()"
    )
    argv = [sys.executable, "-c", code, str(file)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert psutil.Process(child.pid).memory_info().rss > 48 * MIB
        assert 0 < memory.private_ram(child.pid) < 40 * MIB
        child.communicate()
