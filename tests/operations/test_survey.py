"""One look at a machine whose driver is the NVML stub and whose engine is a script: real children, pids."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from appliance import processes
from appliance.engines import pidfile
from appliance.operations.lessons.learning import Lessons
from appliance.operations.machine.survey import Survey, glance, survey
from appliance.paths import Paths
from appliance.settings import Engine, Settings
from appliance.units import MIB
from tests import nvml_stub

_CARD = "Fake RTX 9000 Laptop GPU"
_SERVER = f"""#!/bin/sh
echo 'version: 10434 (fake)'
echo '  CUDA0: {_CARD} (8187 MiB, 5000 MiB free)'
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nvml_stub.build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def state(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The stub's state file; children of this process see the stub as their driver."""
    file = tmp_path / "nvml-state"
    for key, value in nvml_stub.environment(library, file).items():
        monkeypatch.setenv(key, value)
    nvml_stub.write_state(file)
    return file


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    server = tmp_path / "llama-server"
    server.write_text(_SERVER)
    server.chmod(0o755)
    return Settings(engine=Engine(llama_server=str(server)))


@pytest.fixture
def engine(paths: Paths) -> Iterator[int]:
    """The pid of a process that a pid file names as the running engine, with 40 MiB of its own."""
    code = "import sys\nkept = bytearray(40 << 20)\nprint(flush=True)\nsys.stdin.read()"
    argv = [sys.executable, "-c", code]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        started, ticks = processes.start_time(child.pid), processes.start_ticks(child.pid)
        folder = pidfile.folder(paths)
        folder.mkdir(parents=True, exist_ok=True)
        note = json.dumps({"pid": child.pid, "started": started, "ticks": ticks})
        (folder / f"{child.pid}.json").write_text(note)
        yield child.pid
        child.communicate()


def _busy(state: Path, engine: int) -> None:
    """The engine holds 3000 MiB of the card, this very process 700 MiB."""
    of_programs = {"pid.0": os.getpid(), "proc_mib.0": 700, "pid.1": engine, "proc_mib.1": 3000}
    nvml_stub.write_state(state, procs=2, total_mib=8192, used_mib=3800, reserved_mib=300, **of_programs)


def _check(looked: Survey) -> None:
    (device,) = looked.devices()
    assert (device.ours, device.free) == (3000 * MIB, 4092 * MIB)
    assert [(h.name, h.pid, h.n_bytes) for h in device.held] == [
        (psutil.Process().name(), os.getpid(), 700 * MIB)
    ]
    assert (device.integrated, device.pci) == (False, "0000:01:00.0")
    assert 40 * MIB <= looked.host().ours < 120 * MIB
    assert looked.host().bandwidth is not None


async def test_a_look_tells_our_engine_from_other_programs(
    state: Path, settings: Settings, engine: int, paths: Paths
) -> None:
    _busy(state, engine)
    _check(await survey(settings, paths=paths))


async def test_a_glance_for_a_list_does_so_too(
    state: Path, settings: Settings, engine: int, paths: Paths
) -> None:
    _busy(state, engine)
    _check(await glance(settings, paths))


async def test_bandwidths_that_replies_showed_count_instead_of_data_sheets(
    state: Path, settings: Settings, paths: Paths
) -> None:
    build = (await survey(settings)).build().build
    paths.state.mkdir(parents=True, exist_ok=True)
    Lessons(paths.learned).note_bandwidth(build, "CUDA0", 123e9)
    Lessons(paths.learned).note_bandwidth(build, "Host", 31e9)
    looked = await survey(settings, paths=paths)

    (device,) = looked.devices()
    assert (device.bandwidth, device.bandwidth_seen) == (123e9, True)
    assert (looked.host().bandwidth, looked.host().bandwidth_seen) == (31e9, True)


async def test_without_a_home_our_engine_is_a_program_like_others(
    state: Path, settings: Settings, engine: int
) -> None:
    _busy(state, engine)
    looked = await survey(settings)
    (device,) = looked.devices()
    assert (device.ours, [holder.pid for holder in device.held]) == (0, [engine, os.getpid()])
    assert looked.host().ours == 0


async def test_a_driver_that_tells_no_memory_leaves_the_engines_word(state: Path, settings: Settings) -> None:
    nvml_stub.write_state(state, err__nvmlDeviceGetMemoryInfo=3, err__nvmlDeviceGetMemoryInfo_v2=3)
    (device,) = (await survey(settings)).devices()
    assert (device.total, device.free) == (8187 * MIB, 5000 * MIB)


async def test_unified_memory_is_ram_and_no_more_than_ram_has(state: Path, settings: Settings) -> None:
    memory = psutil.virtual_memory()
    server = Path(settings.engine.llama_server or "")
    listed = f"({memory.total >> 20} MiB, {memory.total >> 20} MiB free)"
    _replace(server, "(8187 MiB, 5000 MiB free)", listed)
    nvml_stub.write_state(state, err__nvmlDeviceGetMemoryInfo=3, err__nvmlDeviceGetMemoryInfo_v2=3)
    looked = await survey(settings)
    (device,) = looked.devices()
    assert device.integrated is True
    assert device.free is not None
    assert device.free == looked.machine.ram_available


def _replace(file: Path, old: str, new: str) -> None:
    file.write_text(file.read_text().replace(old, new))
