"""The machine as a whole: no GPU, hidden GPUs, sleeping GPUs, drivers that hang."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest

from appliance.hardware import Battery, Gpu, Machine, detect, detect_safely
from appliance.hardware.sysfs import Roots
from tests.hardware.folders import files, pci
from tests.nvml_stub.machine import FakeMachine
from tests.traps import trap

_AMD, _INTEL, _NVIDIA = 0x1002, 0x8086, 0x10DE


def test_a_machine_without_any_gpu_says_so(roots: Roots) -> None:
    machine = detect(roots=roots)
    assert machine.gpus == ()
    assert [note for note in machine.notes if note.startswith("No GPU was found")]
    assert machine.ram_total is not None
    assert machine.ram_total == psutil.virtual_memory().total


@pytest.mark.parametrize("vendor", [0x1234, 0x1AF4, 0x15AD, 0x1414, 0x1B36, 0x1A03])
def test_virtual_display_adapters_are_no_gpus(roots: Roots, vendor: int) -> None:
    pci(roots, "0000:00:02.0", vendor)
    assert detect(roots=roots).gpus == ()


def test_other_devices_of_a_gpu_vendor_are_no_gpus(roots: Roots) -> None:
    pci(roots, "0000:00:1f.3", _INTEL, kind=0x040300)
    pci(roots, "0000:01:00.1", _NVIDIA, kind=0x040300)
    assert detect(roots=roots).gpus == ()


def test_an_nvidia_gpu_without_its_driver_is_here_with_unknown_memory(roots: Roots) -> None:
    pci(roots, "0000:01:00.0", _NVIDIA, 0x2860, kind=0x030200)
    machine = detect(roots=roots)
    gpu = machine.gpus[0]
    assert (gpu.id, gpu.backend, gpu.total) == ("pci:0000:01:00.0", "cuda", None)
    assert "10de:2860" in gpu.name
    assert "Install the NVIDIA driver" in machine.notes[0]


def test_an_intel_gpu_on_the_root_bus_is_integrated(roots: Roots) -> None:
    pci(roots, "0000:00:02.0", _INTEL, 0x46A6)
    pci(roots, "0000:03:00.0", _INTEL, 0x56A0)
    gpus = detect(roots=roots).gpus
    assert [(gpu.backend, gpu.integrated, gpu.total) for gpu in gpus] == [
        ("vulkan", True, None),
        ("vulkan", False, None),
    ]


def _sleeping(roots: Roots) -> None:
    pci(roots, "0000:01:00.0", _NVIDIA, power__runtime_status="suspended")
    files(
        roots.proc / "driver" / "nvidia" / "gpus" / "0000:01:00.0",
        information="Model: \t NVIDIA GeForce RTX 4060 Laptop GPU\nGPU UUID: \t GPU-1234",
    )


_DETECT_IN = """
from pathlib import Path
from appliance.hardware.detection import detect
from appliance.hardware.sysfs import Roots
result = detect(roots=Roots(Path({sys!r}), Path({proc!r}), Path({share!r})), wake={wake}).to_json()
"""


def _detect_in(laptop: FakeMachine, roots: Roots, *, wake: bool) -> Machine:
    code = _DETECT_IN.format(sys=str(roots.sys), proc=str(roots.proc), share=str(roots.share), wake=wake)
    return Machine.from_json(laptop.json(code))


def test_a_sleeping_gpu_is_not_woken(laptop: FakeMachine, roots: Roots) -> None:
    _sleeping(roots)
    laptop.set(delay_us=30_000_000)  # any NVML call would be noticed
    machine = _detect_in(laptop, roots, wake=False)
    gpu = machine.gpus[0]
    assert (gpu.id, gpu.name) == ("GPU-1234", "NVIDIA GeForce RTX 4060 Laptop GPU")
    assert (gpu.asleep, gpu.total, gpu.free) == (True, None, None)
    assert "sleeps" in machine.notes[0]


def test_a_sleeping_gpu_is_woken_when_asked_for(laptop: FakeMachine, roots: Roots) -> None:
    _sleeping(roots)
    gpu = _detect_in(laptop, roots, wake=True).gpus[0]
    assert (gpu.asleep, gpu.total) == (False, 8192 << 20)


def test_one_gpu_awake_is_read_and_the_sleeping_one_beside_it_is_not(
    laptop: FakeMachine, roots: Roots
) -> None:
    _sleeping(roots)
    pci(roots, "0000:02:00.0", _NVIDIA, power__runtime_status="active")
    laptop.set(count=2)
    logged = laptop.logging()
    machine = _detect_in(logged, roots, wake=False)
    assert [(gpu.asleep, gpu.total) for gpu in machine.gpus] == [(True, None), (False, 8192 << 20)]
    assert [gpu.pci for gpu in machine.gpus] == ["0000:01:00.0", "0000:02:00.0"]
    assert [note for note in machine.notes if "sleeps" in note]
    assert {call.split()[-1] for call in logged.calls() if call.startswith("nvmlDevice")} == {"1"}


async def test_the_safe_way_gives_the_same(laptop: FakeMachine) -> None:
    laptop.set(total_mib=4096, used_mib=0, reserved_mib=0)
    machine = await detect_safely(30, env=laptop.env)
    assert [(gpu.total, gpu.free) for gpu in machine.gpus] == [(4096 << 20, 4096 << 20)]
    assert machine.cores_logical is not None


async def test_the_safe_way_imports_nothing_of_the_current_folder(
    laptop: FakeMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = trap(tmp_path / "trap")
    monkeypatch.chdir(tmp_path / "trap")
    machine = await detect_safely(30, env=laptop.env)
    assert not mark.exists()
    assert len(machine.gpus) == 1


async def test_a_driver_that_hangs_costs_the_timeout_and_a_note(laptop: FakeMachine) -> None:
    laptop.set(delay_us=60_000_000)
    began = time.monotonic()
    machine = await detect_safely(1.0, env=laptop.env)
    assert time.monotonic() - began < 10
    assert "gave no answer within 1 s" in machine.notes[0]
    assert machine.ram_total == psutil.virtual_memory().total


async def test_a_driver_that_crashes_is_a_note(laptop: FakeMachine) -> None:
    laptop.set(crash=1)
    machine = await detect_safely(30, env=laptop.env)
    assert "ended with code -6" in machine.notes[0]
    assert machine.ram_total is not None


def test_a_machine_survives_its_json() -> None:
    machine = Machine(
        gpus=(Gpu("GPU-1", 0, "One", "rocm", 8, 4, 4, "amdgpu", True, "0000:03:00.0", True),),
        ram_total=16,
        ram_available=8,
        cores_physical=4,
        cores_logical=8,
        battery=Battery(55.0, False),
        cpu_name="A CPU",
        notes=("a note",),
    )
    assert Machine.from_json(machine.to_json()) == machine


_LAYERS = "29 1 0:26 / / rw,relatime - overlay overlay rw,lowerdir=/a\n"
_DISK = "29 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n30 29 0:5 / /dev rw - devtmpfs udev rw\n"


@pytest.mark.parametrize(
    ("code", "mounts", "state"),
    [
        (999, _DISK, "unknown_error"),
        (999, _LAYERS, "container"),
        (4, _DISK, "no_permission"),
        (4, _LAYERS, "container"),
        (18, _LAYERS, "version_mismatch"),
    ],
)
def test_a_driver_that_refuses_has_one_message_and_one_fix_also_in_a_container(
    laptop: FakeMachine, roots: Roots, code: int, mounts: str, state: str
) -> None:
    pci(roots, "0000:01:00.0", _NVIDIA)
    files(roots.proc / "self", mountinfo=mounts)
    laptop.set(err__nvmlInitWithFlags=code)
    machine = _detect_in(laptop, roots, wake=False)
    assert machine.trouble is not None
    assert (machine.trouble.state, machine.notes[0]) == (state, str(machine.trouble))
    assert [gpu.pci for gpu in machine.gpus] == ["0000:01:00.0"]


def test_a_healthy_gpu_is_no_trouble(laptop: FakeMachine, roots: Roots) -> None:
    assert _detect_in(laptop, roots, wake=False).trouble is None


def test_one_lost_gpu_is_trouble(laptop: FakeMachine, roots: Roots) -> None:
    laptop.set(err__nvmlDeviceGetUUID=15)
    trouble = _detect_in(laptop, roots, wake=False).trouble
    assert trouble is not None
    assert trouble.state == "gpu_lost"
