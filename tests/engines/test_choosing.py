"""Which engines are found, which one is used, and with what environment and flags it starts."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from appliance import settings
from appliance.engines import Build, EngineKind, adapters, choose, discover
from appliance.engines.adapters import Listen, command, slots_of
from appliance.engines.children.xllamacpp_child import use_devices
from appliance.engines.devices import from_json, from_text, is_software
from appliance.engines.environment import child_environment
from appliance.engines.floor import OLD, UNDATED, age, floor_note
from appliance.errors import EngineFailed, NoEngine
from appliance.planning import DeviceMemory
from appliance.units import MIB
from tests.engines.fake_engine import Script, install
from tests.engines.launches import launch, plan

CUDA = DeviceMemory("CUDA0", "NVIDIA GeForce RTX 4070 Laptop GPU", "cuda", 8 << 30, 7 << 30)
LLVMPIPE = DeviceMemory(
    "Vulkan0", "llvmpipe (LLVM 15.0.6, 256 bits)", "vulkan", 2 << 30, 2 << 30, software=True
)
LISTEN = Listen("/run/e.sock", 0)


def found(kind: EngineKind, *devices: DeviceMemory, usable: bool = True) -> Build:
    sees = any(not device.software for device in devices)
    note = None if usable else f"{kind} does not start."
    return Build(kind, None, "1", f"{kind} 1", devices, sees, note, usable)


SERVER, X, PYTHON = found("llama-server"), found("xllamacpp"), found("llama-cpp-python")
GPU_SERVER, GPU_X = found("llama-server", CUDA), found("xllamacpp", CUDA)
SOFTWARE = found("llama-server", LLVMPIPE)


@pytest.mark.parametrize(
    ("builds", "kind", "reason"),
    [
        ((SERVER, X, PYTHON), "xllamacpp", "no engine sees a GPU"),
        ((SOFTWARE, X, PYTHON), "xllamacpp", "no engine sees a GPU"),
        ((X, GPU_SERVER, PYTHON), "llama-server", "RTX 4070"),
        ((GPU_X, GPU_SERVER), "xllamacpp", "RTX 4070"),
        ((GPU_SERVER, GPU_X), "llama-server", "RTX 4070"),
        ((PYTHON, SERVER), "llama-cpp-python", "no engine sees a GPU"),
        ((SERVER,), "llama-server", "no engine sees a GPU"),
        ((found("xllamacpp", usable=False), PYTHON), "llama-cpp-python", "no engine sees a GPU"),
    ],
)
def test_the_order(builds: tuple[Build, ...], kind: str, reason: str) -> None:
    choice = choose(builds, "auto")
    assert choice.build.kind == kind
    assert reason in choice.reason


def test_a_wish_is_kept_even_without_a_gpu() -> None:
    assert choose((SOFTWARE, GPU_X), "llama-server").build is SOFTWARE
    assert choose((SERVER, GPU_SERVER), "llama-server").build is GPU_SERVER


def test_a_wish_that_cannot_be_met_says_why() -> None:
    with pytest.raises(NoEngine) as caught:
        choose((found("llama-server", usable=False), X), "llama-server")
    assert caught.value.cause == "llama-server does not start."
    with pytest.raises(NoEngine, match="No engine can be started here"):
        choose((), "auto")


def test_devices_of_the_text_list() -> None:
    listed = (
        "Available devices:\n"
        "  CUDA0: NVIDIA GeForce RTX 4070 Laptop GPU (8187 MiB, 7001 MiB free)\n"
        "  Vulkan1: llvmpipe (LLVM 15.0.6, 256 bits) (2048 MiB, 2048 MiB free)\n"
    )
    cuda, pipe = from_text(listed)
    assert (cuda.name, cuda.backend, cuda.total, cuda.free) == ("CUDA0", "cuda", 8187 * MIB, 7001 * MIB)
    assert (cuda.software, cuda.max_tensor) == (False, None)
    assert (pipe.description, pipe.software) == ("llvmpipe (LLVM 15.0.6, 256 bits)", True)
    assert pipe.max_tensor is None  # the list does not tell: Vulkan is asked
    assert from_text("Available devices:\n  (none)\n") == ()


def test_devices_of_the_json_list_leave_the_cpu_out() -> None:
    rows = [
        {"name": "CPU", "description": "AMD", "total": 5, "free": 5, "kind": "cpu"},
        {"name": "BLAS", "description": "OpenBLAS", "total": 0, "free": 0, "kind": "accel"},
        {"name": "MTL0", "description": "Apple M3", "total": 100, "free": 90, "kind": "gpu"},
        {"name": "Vulkan0", "description": "Intel Iris Xe", "total": 0, "free": 0, "kind": "igpu"},
    ]
    metal, intel = from_json("noise\n" + json.dumps(rows) + "\n")
    assert (metal.backend, metal.integrated, metal.free) == ("metal", True, 90)
    assert (intel.integrated, intel.total, intel.free) == (True, None, None)  # 0 means unknown


@pytest.mark.parametrize(
    "text", ["llvmpipe (LLVM 15)", "SwiftShader Device (LLVM 16)", "Microsoft Basic Render Driver"]
)
def test_software_devices(text: str) -> None:
    assert is_software(text)
    assert not is_software("NVIDIA GeForce RTX 4070")


@pytest.mark.parametrize(
    ("kind", "version", "old"),
    [
        ("llama-server", "10434 (abc)", "new"),
        ("llama-server", "6123 (abc)", "old"),
        ("llama-server", "0.8.0 (build 11800, commit 7e4c0a9)", "new"),
        ("llama-server", "0.1.0-dev (build 1, commit 7e4c0a9)", "unknown"),
        ("xllamacpp", "2026.10.11549", "new"),
        ("xllamacpp", "2026.8.10229", "old"),
        ("xllamacpp", "2026.7.9000", "old"),
        ("xllamacpp", "2027.1.13000", "new"),
        ("xllamacpp", "0.2.14", "old"),
        ("llama-cpp-python", "0.3.36", "new"),
        ("llama-cpp-python", "0.3.16", "old"),
        ("llama-cpp-python", "unknown", "unknown"),
    ],
)
def test_the_security_floor(kind: EngineKind, version: str, old: str) -> None:
    assert age(kind, version) == old
    assert (floor_note(age(kind, version)) is None) == (old == "new")


def named(build: Build, name: str, **changes: Any) -> Build:
    return replace(build, name=name, **changes)


OLD_GPU = named(GPU_SERVER, "llama-server", old=True, note=OLD)
NEW = named(X, "xllamacpp")


def test_an_old_build_is_not_chosen_unless_allowed() -> None:
    assert choose((OLD_GPU, NEW), "auto").build is NEW
    assert choose((OLD_GPU, NEW), "auto", allow_old=True).build is OLD_GPU
    with pytest.raises(NoEngine) as caught:
        choose((OLD_GPU,), "auto")
    assert caught.value.cause == f"llama-server 1: {OLD}"
    assert "engine.allow_old true" in str(caught.value.hint)
    with pytest.raises(NoEngine) as caught:
        choose((OLD_GPU, NEW), "llama-server")
    assert "engine.allow_old true" in str(caught.value.hint)


def test_one_that_cannot_be_dated_is_chosen_with_its_note() -> None:
    undated = named(GPU_SERVER, "llama-server", note=UNDATED)
    assert choose((undated, NEW), "auto").build is undated


INSTALLED = replace(GPU_X, name="cu128-1", home="/d/cu128-1/files", build="xllamacpp 1 cu128")


def test_the_users_choice_is_kept() -> None:
    choice = choose((INSTALLED, NEW), "auto", use="xllamacpp")
    assert (choice.build, choice.reason, choice.replaced) == (NEW, "chosen by `engines use`", None)
    choice = choose((GPU_SERVER, INSTALLED), "auto", use="cu128-1")
    assert choice.build is INSTALLED
    assert "RTX 4070" in choice.reason


@pytest.mark.parametrize(
    ("there", "words"),
    [
        (None, "is not here any more"),
        (replace(INSTALLED, usable=False, note="It failed its test load."), "failed its test load"),
        (replace(INSTALLED, old=True, note=OLD), "is older than"),
    ],
)
def test_a_choice_that_does_not_work_is_never_replaced_silently(there: Build | None, words: str) -> None:
    choice = choose((NEW,) if there is None else (there, NEW), "auto", use="cu128-1")
    assert choice.build is NEW
    assert choice.replaced is not None
    assert "cu128-1" in choice.replaced
    assert words in choice.replaced
    assert choice.replaced in choice.reason


def test_a_wanted_kind_wins_over_the_users_choice_and_says_so() -> None:
    choice = choose((INSTALLED, named(SERVER, "llama-server")), "llama-server", use="cu128-1")
    assert (choice.build.name, choice.replaced) == ("llama-server", None)
    assert "cu128-1" in choice.reason
    assert choose((INSTALLED, NEW), "xllamacpp", use="xllamacpp").build is NEW


def test_without_a_gpu_the_environments_own_build_comes_before_an_installed_one() -> None:
    blind = replace(INSTALLED, devices=(), sees_gpu=False)
    assert choose((blind, NEW), "auto").build is NEW
    assert choose((blind, NEW), "xllamacpp").build is NEW
    assert choose((NEW, INSTALLED), "xllamacpp").build is INSTALLED
    assert choose((blind,), "auto").build is blind


async def test_a_server_on_path_is_found_and_a_broken_one_is_listed_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "bin", Script())
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    builds = await discover(settings.Engine(llama_server=str(broken)))
    assert [(b.kind, b.usable) for b in builds][:3] == [
        ("llama-server", False), ("xllamacpp", True), ("llama-server", True),
    ]  # fmt: skip
    assert builds[0].note == f"{broken} did not answer like a llama-server (exit code 3)."
    assert builds[2].version == "10434 (fake)"
    missing = await discover(settings.Engine(llama_server=str(tmp_path / "nothing")))
    assert missing[0].note == f"{tmp_path / 'nothing'} does not start: No such file or directory."


def test_the_environment_is_cleaned() -> None:
    base = {
        "PATH": "/bin", "HOME": "/h", "LLAMA_ARG_PORT": "1", "HTTPS_PROXY": "http://p", "HF_TOKEN": "secret",
        "APPLIANCE_HOME": "/a", "CUDA_VISIBLE_DEVICES": "1", "GGML_VK_VISIBLE_DEVICES": "0",
        "ROCR_VISIBLE_DEVICES": "0", "LD_LIBRARY_PATH": "/l", "PYTHONPATH": "/p", "LLAMA_API_KEY": "old",
    }  # fmt: skip
    env = child_environment(key="new", marker="m", base=base)
    assert env == {
        "PATH": "/bin", "HOME": "/h", "CUDA_VISIBLE_DEVICES": "1", "GGML_VK_VISIBLE_DEVICES": "0",
        "ROCR_VISIBLE_DEVICES": "0", "LD_LIBRARY_PATH": "/l", "LLAMA_API_KEY": "new",
        "APPLIANCE_ENGINE": "m", "GGML_NO_BACKTRACE": "1", "PYTHONUNBUFFERED": "1",
    }  # fmt: skip
    assert child_environment(python=True, base=base)["PYTHONPATH"] == "/p"
    assert child_environment(python=True, home="/e", base=base)["PYTHONPATH"] == "/e:/p"
    installed = child_environment(home="/e", program="/e/bin/llama-server", base=base)
    assert installed["LD_LIBRARY_PATH"] == "/e/bin:/l"
    assert "PYTHONPATH" not in installed


async def test_the_flags_of_llama_server(tmp_path: Path) -> None:
    build = install(tmp_path, Script())
    what = await command(build, launch(Path("/m.gguf")), LISTEN, key="secret", marker="m")
    flags = list(what.argv)
    expected = {"-ngl": "0", "-c": "1024", "-np": "2", "-fit": "off", "-lv": "4", "-m": "/m.gguf"}
    expected |= {"--host": "/run/e.sock", "--cors-origins": "localhost"}
    for name, value in expected.items():
        assert flags[flags.index(name) + 1] == value
    assert "--no-ui" in flags
    assert "--metrics" in flags
    assert "secret" not in " ".join(flags)
    assert what.env["LLAMA_API_KEY"] == "secret"
    measuring = await command(
        build, launch(Path("/m.gguf")), LISTEN, key="k", marker="m", fit=True, warmup=False
    )
    flags = list(measuring.argv)
    assert flags[flags.index("-fit") + 1] == "on"
    assert "--no-warmup" in flags


async def test_the_spec_of_our_children_holds_the_plan_and_no_key() -> None:
    what = await command(X, launch(Path("/m.gguf"), embedding=True), LISTEN, key="secret", marker="m")
    assert what.stdin is not None
    assert b"secret" not in what.stdin
    spec = json.loads(what.stdin)
    assert (spec["ctx"], spec["parallel"], spec["gpu_layers"], spec["fit"]) == (1024, 2, 0, False)
    assert (spec["kv_type"], spec["threads"], spec["embedding"]) == ("f16", 2, True)


@pytest.mark.parametrize(
    ("flags", "devices", "layers"),
    [((), None, 12), (("-dev", "none"), [], 0), (("-dev", "CUDA1,CUDA2"), ["CUDA1", "CUDA2"], 12)],
)
async def test_the_spec_of_our_children_keeps_the_planned_devices(
    flags: tuple[str, ...], devices: list[str] | None, layers: int
) -> None:
    wanted = plan(gpu_layers=12)
    wanted = replace(wanted, flags=(*wanted.flags, *flags))
    for build in (X, PYTHON):
        what = await command(build, launch(Path("/m.gguf"), wanted=wanted), LISTEN, key="k", marker="m")
        spec = json.loads(what.stdin or b"")
        assert (spec["devices"], spec["gpu_layers"]) == (devices, layers)


class Package:
    """Of xllamacpp, what chooses devices."""

    class llama_split_mode:  # noqa: N801 - its name
        LLAMA_SPLIT_MODE_NONE = 0

    def __init__(self, *devices: tuple[str, int]) -> None:
        self._devices = devices

    def get_device_info(self) -> list[dict[str, object]]:
        return [{"name": name, "type": kind} for name, kind in self._devices]


@pytest.mark.parametrize(
    ("names", "main", "split", "layers", "off"),
    [
        (None, 0, 1, 12, False),
        ([], 0, 1, 0, True),
        (["CUDA1"], 1, 0, 12, False),  # an integrated GPU does not count beside others
        (["CUDA0", "CUDA1"], 0, 1, 12, False),
        (["CUDA7"], 0, 1, 12, False),
    ],
)
def test_xllamacpp_keeps_to_no_device_or_to_one(
    names: list[str] | None, main: int, split: int, layers: int, off: bool
) -> None:
    package = Package(("Vulkan0", 2), ("CUDA0", 1), ("CPU", 0), ("CUDA1", 1))
    params = SimpleNamespace(
        main_gpu=0, split_mode=1, n_gpu_layers=12, no_kv_offload=False, no_op_offload=False
    )
    use_devices(params, names, package)
    assert (params.main_gpu, params.split_mode, params.n_gpu_layers) == (main, split, layers)
    assert (params.no_kv_offload, params.no_op_offload) == (off, off)


async def test_a_help_that_came_too_late_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = install(tmp_path, Script())
    answers: list[tuple[int | None, str]] = [(None, ""), (0, "--metrics --no-webui")]

    async def slow_once(_: object, **__: object) -> tuple[int | None, str]:
        return answers.pop(0)

    monkeypatch.setattr(adapters, "ask", slow_once)
    flags = []
    for _ in range(3):
        what = await command(build, launch(Path("/m.gguf")), LISTEN, key="k", marker="m")
        flags.append([flag for flag in what.argv if flag in ("--no-ui", "--no-webui")])
    assert flags == [["--no-ui"], ["--no-webui"], ["--no-webui"]]


WINDOWS = """
import aiohttp, asyncio, multiprocessing, os, psutil, signal, socket, sys
for module, names in ((signal, ("SIGKILL", "SIGBUS", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGCHLD")),
                      (os, ("killpg", "getsid", "setsid", "getuid", "fork")), (socket, ("AF_UNIX",))):
    for name in names:
        delattr(module, name)
sys.modules |= dict.fromkeys(("fcntl", "pwd", "grp", "resource", "termios"))  # importing them fails
import appliance.engines, appliance.monitor.monitor, appliance.hardware, appliance.processes
from appliance.engines.failures import explain
print(explain(0xC0000005, None).cause)
"""


def test_the_rooms_can_be_imported_without_what_windows_lacks() -> None:
    # What is imported first has Windows parts of its own.
    done = subprocess.run([sys.executable, "-c", WINDOWS], capture_output=True, text=True, timeout=60)
    assert "segmentation fault" in done.stdout, done.stderr


async def test_llama_cpp_python_gets_one_slot_of_the_planned_length() -> None:
    what = await command(PYTHON, launch(Path("/m.gguf")), LISTEN, key="k", marker="m")
    assert what.stdin is not None
    spec = json.loads(what.stdin)
    assert (spec["ctx"], spec["parallel"]) == (512, 1)
    assert slots_of("llama-cpp-python", plan(parallel=4)) == 1


async def test_a_server_that_is_gone_is_an_error_for_people(tmp_path: Path) -> None:
    build = Build("llama-server", str(tmp_path / "gone"), "1", "llama-server 1")
    with pytest.raises(EngineFailed, match="can't be started"):
        await command(build, launch(Path("/m.gguf")), LISTEN, key="k", marker="m")
