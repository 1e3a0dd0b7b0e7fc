"""Heat in a running appliance: what it changes for a request, what it never changes, and what is told of it.

The GPU is the C stub behind the real NVML binding; the engine is the scripted one, whose list shows the same
card.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import nvml_stub
from tests.end_to_end.appliance import Home, Running
from tests.end_to_end.second_leg import SMALL, appliance, ask, remote_server, wait
from tests.engines.fake_engine import Script, install
from tests.fake_vllm import FakeVllm
from tests.nvml_stub import profiles

CARD = "CUDA0: Fake RTX 9000 Laptop GPU (8192 MiB, 7000 MiB free)"
QUICK = {"APPLIANCE_GOVERNOR__HOLD": "1s", "APPLIANCE_GOVERNOR__DWELL": "3s"}
WORDS = ("a",) * 10
LOADED = ("load_tensors: offloaded 31/31 layers to GPU",)
FAST = Script(tokens=WORDS, token_s=0.01, load_lines=LOADED)
SLOW = Script(tokens=WORDS, token_s=0.25, load_lines=LOADED)
ON_CPU = Script(tokens=WORDS, token_s=0.01)


@dataclass(frozen=True)
class Laptop:
    """The scripted engine with all layers on the stub's card."""

    remote: FakeVllm
    running: Running
    state: Path
    calls: Path

    def set(self, **values: int | str) -> None:
        nvml_stub.write_state(self.state, **{"t_slowdown": 94, **values})

    @property
    def left(self) -> int:
        """Requests that reached the remote."""
        return len(self.remote.generations)


@asynccontextmanager
async def laptop(
    home: Home, tmp_path: Path, *scripts: Script, devices: tuple[str, ...] = (CARD,), **first: int | str
) -> AsyncIterator[Laptop]:
    state, calls = tmp_path / "gpu", tmp_path / "calls"
    nvml_stub.write_state(state, **{"t_slowdown": 94, "temp": 60, **first})
    seen = nvml_stub.environment(nvml_stub.build(tmp_path), state, calls)
    engine = install(tmp_path / "engine", *(scripts or (FAST,)), devices=devices)
    env = {key: seen[key] for key in seen if key.startswith(("LD_LIBRARY", "FAKE_NVML"))} | QUICK
    env["APPLIANCE_ENGINE__LLAMA_SERVER"] = str(engine.path)
    more = ("--engine", "llama-server", *SMALL)
    async with remote_server() as remote, appliance(home, remote, *more, env=env) as running:
        yield Laptop(remote, running, state, calls)


async def a_new_sample(running: Running) -> None:
    """Of the sensor child: its age begins anew."""
    last = 0.0

    def younger(status: dict[str, Any]) -> bool:
        nonlocal last
        before, last = last, status["sensors"]["age_s"]
        return bool(last < before)

    await wait(running, younger)


async def test_over_the_threshold_for_the_hold_requests_leave_and_come_back(
    home: Home, tmp_path: Path
) -> None:
    async with laptop(home, tmp_path) as one:
        found = await wait(one.running, lambda s: s["gpus"] and s["gpus"][0]["temperature"] == 60)
        assert (found["thermal"], found["gpus"][0]["slowdown_at"]) == ("cool", 94)
        status, headers, _ = await ask(one.running)
        assert (status, headers["X-Appliance-Route"]) == (200, "local")
        one.set(temp=95, reasons=0x40)
        hot = await wait(one.running, lambda s: s["thermal"] == "critical")
        (note,) = [note for note in hot["notes"] if note["code"] == "too_hot"]
        assert note["detail"].startswith("Fake RTX 9000 Laptop GPU is critically hot, at 95 °C (limit 94)")
        status, headers, _ = await ask(one.running)
        assert (status, headers["X-Appliance-Reason"]) == (200, "remote.thermal")
        left = one.left
        status, headers, body = await ask(one.running, route="local")
        assert (status, headers["X-Appliance-Reason"]) == (503, "reject.thermal")
        assert "Fake RTX 9000 Laptop GPU is critically hot" in body["error"]["message"]
        assert int(headers["Retry-After"]) == 3, "the dwell, at the earliest"
        assert one.left == left == 1
        one.set(temp=70)
        await wait(one.running, lambda s: s["thermal"] == "cool")
        status, headers, body = await ask(one.running)
        assert (status, headers["X-Appliance-Route"]) == (200, "local")
        assert "degraded" not in body["appliance"]
        assert one.left == left


async def test_a_machine_measurably_slowed_by_heat_gives_way_and_comes_back(
    home: Home, tmp_path: Path
) -> None:
    """Speed decides, the sensor explains: the same heat at usual speed changes nothing."""
    async with laptop(home, tmp_path, FAST, SLOW) as one:
        running = one.running
        for _ in range(6):
            assert (await ask(running, max_tokens=10))[0] == 200
        one.set(temp=93, reasons=0x20)
        await wait(running, lambda s: s["thermal"] == "warm")
        _, headers, _ = await ask(running, max_tokens=10)
        assert headers["X-Appliance-Route"] == "local", "hot at usual speed stays here"
        os.kill(await asyncio.to_thread(running.engine_pid), signal.SIGKILL)
        await wait(
            running, lambda s: s["engines"][0]["state"] == "ready" and s["engines"][0]["restarts"] == 1
        )
        for _ in range(3):
            await ask(running, route="local", max_tokens=10)
        found = await wait(running, lambda s: s["thermal"] == "throttled")
        assert found["factor"] < 0.5
        assert found["gpus"][0]["signs"] == ["near", "bits"]
        assert "heat slows" in found["eases"]
        _, headers, body = await ask(running, route="local", max_tokens=10)
        assert body["appliance"]["degraded"] == ["throttled"]
        left = one.left
        status, headers, _ = await ask(running, max_tokens=10)
        assert (status, headers["X-Appliance-Reason"]) == (200, "remote.thermal")
        assert one.left == left + 1
        one.set(temp=60)
        await wait(running, lambda s: s["thermal"] == "cool" and s["eases"] is None)


async def test_a_laptop_that_reports_throttling_for_ever_at_usual_speed_stays_local(
    home: Home, tmp_path: Path
) -> None:
    card = "CUDA0: NVIDIA GeForce MX330 (2048 MiB, 1500 MiB free)"
    always = profiles.THINKPAD_THAT_ALWAYS_THROTTLES
    async with laptop(home, tmp_path, devices=(card,), **always) as one:
        await wait(one.running, lambda s: s["thermal"] == "warm")
        for _ in range(10):
            status, headers, body = await ask(one.running, max_tokens=10)
            assert (status, headers["X-Appliance-Reason"]) == (200, "local.ok")
            assert "degraded" not in body["appliance"]
        found = await asyncio.to_thread(one.running.status)
        assert (found["thermal"], found["factor"], found["eases"]) == ("warm", 1.0, None)
        assert found["gpus"][0]["reasons"] == ["SwThermalSlowdown", "HwThermalSlowdown"]
        assert one.left == 0


async def test_with_no_engine_on_the_gpu_nvml_is_let_go_of(home: Home, tmp_path: Path) -> None:
    """The engine can't use the card: its sensors are not asked again and again, so that it may sleep."""
    async with laptop(home, tmp_path, ON_CPU, devices=()) as one:
        found = await wait(one.running, lambda s: s["engines"][0]["state"] == "ready")
        assert [note["code"] for note in found["notes"]].count("no_gpu_engine") == 1
        todo = next(note["todo"] for note in found["notes"] if note["code"] == "no_gpu_engine")
        assert "engines install cuda" in todo
        status, _, body = await ask(one.running)
        assert (status, body["appliance"]["degraded"]) == (200, ["cpu_fallback"])
        await wait(one.running, lambda s: s["sensors"]["age_s"] is not None)
        asked = one.calls.read_text().splitlines()
        for _ in range(3):
            await a_new_sample(one.running)
        assert one.calls.read_text().splitlines() == asked
        opened = sum("nvmlInit" in call for call in asked)
        assert sum("nvmlShutdown" in call for call in asked) == opened


@pytest.mark.slow
async def test_a_gpu_that_is_lost_has_a_name_and_comes_back(home: Home, tmp_path: Path) -> None:
    async with laptop(home, tmp_path) as one:
        await wait(one.running, lambda s: s["gpus"] and s["gpus"][0]["temperature"] == 60)
        one.set(**nvml_stub.failing(16))
        lost = await wait(one.running, lambda s: s["thermal_message"] is not None)
        gpu = lost["gpus"][0]
        assert gpu["trouble"] == "reset_required"
        assert "nvidia-smi --gpu-reset" in lost["thermal_message"]
        assert (gpu["temperature"], gpu["free"], gpu["power"]) == (None, None, None)
        one.set(temp=61)
        back = await wait(one.running, lambda s: s["gpus"][0]["temperature"] == 61)
        assert (back["gpus"][0]["trouble"], back["thermal_message"]) == (None, None)
