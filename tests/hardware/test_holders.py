"""Who holds a GPU's memory: by real `pynvml` on the stub, and by folders like /proc has them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import psutil
import pytest

from appliance.hardware import Machine, Program, detect, holders
from appliance.hardware.sysfs import Roots
from tests.hardware.folders import files, pci
from tests.nvml_stub.machine import FakeMachine

_DETECT = "from appliance.hardware import detect\nresult = detect().to_json()"
_MIB = 1 << 20
_AMD, _INTEL = 0x1002, 0x8086
_NOBODY = 1 << 30
_ME, _PARENT = os.getpid(), os.getppid()


def _held(laptop: FakeMachine, **state: int) -> list[tuple[int, int | None]]:
    laptop.set(**state)
    gpu = Machine.from_json(laptop.json(_DETECT)).gpus[0]
    return [(program.pid, program.n_bytes) for program in gpu.holders]


def test_programs_that_compute_and_that_draw_are_told_the_largest_first(laptop: FakeMachine) -> None:
    state = {"gpid.0": _NOBODY + 5, "gproc_mib.0": 90, "gpid.1": _NOBODY + 6, "gproc_mib.1": 700}
    held = _held(laptop, procs=1, pid=_NOBODY, proc_mib=300, gprocs=2, **state)
    assert held == [(_NOBODY + 6, 700 * _MIB), (_NOBODY, 300 * _MIB), (_NOBODY + 5, 90 * _MIB)]


def test_one_that_computes_and_draws_stands_once(laptop: FakeMachine) -> None:
    held = _held(laptop, pid=_NOBODY, proc_mib=300, gprocs=1, gpid=_NOBODY, gproc_mib=300)
    assert held == [(_NOBODY, 300 * _MIB)]


def test_sizes_that_windows_does_not_tell_are_unknown_and_not_zero(laptop: FakeMachine) -> None:
    assert _held(laptop, pid=_NOBODY, proc_na=1) == [(_NOBODY, None)]


def test_a_size_above_the_cards_own_is_unknown(laptop: FakeMachine) -> None:
    assert _held(laptop, pid=_NOBODY, total_mib=8192, proc_mib=1 << 23) == [(_NOBODY, None)]


def test_no_program_is_an_empty_list(laptop: FakeMachine) -> None:
    assert _held(laptop, procs=0) == []


@pytest.mark.parametrize("code", [3, 4, 10, 13, 999])
def test_a_refused_list_costs_the_programs_and_nothing_else(laptop: FakeMachine, code: int) -> None:
    lists = (f"{kind}RunningProcesses_v{n}" for kind in ("Compute", "Graphics") for n in (2, 3))
    laptop.set(**{f"err__nvmlDeviceGet{name}": code for name in lists})
    gpu = laptop.json(_DETECT)["gpus"][0]
    assert (gpu["holders"], gpu["total"]) == ([], 8192 * _MIB)


def test_a_driver_from_before_version_3_of_the_list_is_asked_for_version_2(laptop: FakeMachine) -> None:
    held = _held(laptop, pid=_NOBODY, proc_mib=40, err__nvmlDeviceGetComputeRunningProcesses_v3=13)
    assert held == [(_NOBODY, 40 * _MIB)]


def test_a_program_is_named_as_people_know_it(laptop: FakeMachine) -> None:
    laptop.set(pid=_ME)
    assert laptop.json(_DETECT)["gpus"][0]["holders"][0]["name"] == psutil.Process().name()


def test_the_list_is_bounded_and_keeps_the_largest() -> None:
    held: dict[int, int | None] = {_NOBODY + i: i for i in range(1, 100)}
    kept = holders.programs(held | {_NOBODY + 200: None})
    assert [program.n_bytes for program in kept] == list(range(99, 99 - holders.MOST, -1))


def _open_file(roots: Roots, pid: int, fd: int, target: str = "/dev/dri/renderD128", **facts: Any) -> None:
    process = roots.proc / str(pid)
    (process / "fd").mkdir(parents=True, exist_ok=True)
    (process / "fd" / str(fd)).symlink_to(target)
    text = "\n".join(f"{key.replace('_', '-')}:\t{value}" for key, value in facts.items())
    files(process / "fdinfo", **{str(fd): f"pos:\t0\nflags:\t02100002\n{text}"})


def _amd(roots: Roots, **more: Any) -> Path:
    return pci(roots, "0000:03:00.0", _AMD, mem_info_vram_total=24 << 30, mem_info_vram_used=2 << 30, **more)


_CARD = {"drm_driver": "amdgpu", "drm_pdev": "0000:03:00.0"}


def test_amdgpu_tells_vram_by_process(roots: Roots) -> None:
    _amd(roots, hwmon__hwmon1__temp2_input=50000)
    vram = {"drm_memory_vram": "300 MiB", "drm_memory_gtt": "80 MiB", "drm_memory_cpu": "9 MiB"}
    _open_file(roots, _ME, 7, drm_client_id=31, **_CARD, **vram)
    _open_file(roots, _ME, 8, drm_client_id=31, **_CARD, **vram)  # the same one, duplicated
    _open_file(roots, _ME, 9, drm_client_id=32, **_CARD, drm_memory_vram="1024 KiB")
    _open_file(
        roots, _PARENT, 3, drm_client_id=40, **_CARD, drm_memory_vram="2 MiB", drm_resident_vram="5 MiB"
    )
    _open_file(roots, _PARENT, 4, "/home/someone/dri", drm_client_id=41, **_CARD, drm_memory_vram="9 MiB")
    gpu = detect(roots=roots).gpus[0]
    assert [(held.pid, held.n_bytes) for held in gpu.holders] == [(_ME, 301 * _MIB), (_PARENT, 5 * _MIB)]
    assert gpu.holders[0].name == psutil.Process().name()


def test_an_apu_counts_the_ram_that_programs_use_as_its_memory(roots: Roots) -> None:
    _amd(roots, hwmon__hwmon1__in1_input=700)
    _open_file(roots, _ME, 7, drm_client_id=1, **_CARD, drm_memory_vram="300 MiB", drm_memory_gtt="80 MiB")
    assert [held.n_bytes for held in detect(roots=roots).gpus[0].holders] == [380 * _MIB]


def test_intels_own_words_for_the_cards_memory_are_known(roots: Roots) -> None:
    pci(roots, "0000:04:00.0", _INTEL)
    sizes = {"drm_resident_local0": "70 MiB", "drm_resident_system0": "9 MiB", "drm_total_local0": "99 MiB"}
    _open_file(roots, _ME, 5, drm_driver="i915", drm_pdev="0000:04:00.0", drm_client_id=1, **sizes)
    assert [held.n_bytes for held in detect(roots=roots).gpus[0].holders] == [70 * _MIB]


def test_files_of_another_card_broken_ones_and_idle_ones_are_no_holders(roots: Roots) -> None:
    _amd(roots)
    _open_file(roots, _ME, 5, drm_driver="amdgpu", drm_pdev="0000:99:00.0", drm_memory_vram="70 MiB")
    _open_file(roots, _ME, 6, **_CARD, drm_memory_vram="lots")
    _open_file(roots, _ME, 7, **_CARD, drm_memory_vram="0 KiB")
    _open_file(roots, _ME, 8)
    (roots.proc / str(_PARENT)).mkdir()
    assert detect(roots=roots).gpus[0].holders == ()


def test_holders_survive_the_way_through_json(roots: Roots) -> None:
    _amd(roots)
    _open_file(roots, _ME, 5, **_CARD, drm_memory_vram="7 MiB")
    machine = detect(roots=roots)
    assert machine.gpus[0].holders == (Program(_ME, psutil.Process().name(), 7 * _MIB),)
    assert Machine.from_json(machine.to_json()) == machine
