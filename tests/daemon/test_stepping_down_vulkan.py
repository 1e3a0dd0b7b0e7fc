"""The real llama-server with less memory than it was planned for: `prlimit --as`, on Mesa's llvmpipe device.

Its memory is the process's own, so a limit of the address space makes the driver say `ErrorOutOfDeviceMemory`
as a full card does. The planner's measuring run is under the same limit.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.operations.plans.plan import Wishes
from appliance.paths import Paths
from tests.daemon.house import SERVED, house
from tests.engines.binaries import llama_server
from tests.engines.launches import paths_in

pytestmark = [pytest.mark.vulkan, pytest.mark.timeout(400)]

ADDRESS_SPACE = 2_600_000_000
"""Bytes: server and libraries take 1.1 GB of it, the caches of eight slots of 8,192 tokens 1.5 GB."""


@pytest.fixture
def paths() -> Iterator[Paths]:
    folder = Path(tempfile.mkdtemp(prefix="appl"))
    yield paths_in(folder)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def limited(paths: Paths) -> Path:
    """A llama-server that may take so much and no more."""
    program = paths.data / "llama-server"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec prlimit --as={ADDRESS_SPACE} "{llama_server()}" "$@"\n')
    program.chmod(0o755)
    return program


async def test_a_load_forced_out_of_memory_steps_down_to_one_that_answers(
    paths: Paths, limited: Path, smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GGML_VK_VISIBLE_DEVICES", "0")
    program = str(limited)
    async with house(paths, smollm2_path, reserve="64MiB", kind="llama-server", llama_server=program) as home:
        await home.serving.load(home.ref, Wishes(gpu_layers=31, parallel=8, kv="f16"))
        now = home.serving.snapshot
        assert now.state == "ready"
        assert now.plan is not None
        assert now.engine is not None
        steps = [reason.text for reason in now.plan.reasons if reason.code == "step_down"]
        assert 1 <= len(steps) <= 4
        assert "Vulkan0 ran out" in steps[0]
        first = next(one.plan for one in home.told if one.plan is not None)
        assert first is not None
        assert now.plan.ctx * now.plan.parallel < first.ctx * first.parallel
        assert (now.plan.gpu_layers, now.engine.gpu_layers) == (31, 31), "what was asked for stays"
        assert (now.engine.ctx, now.engine.parallel) == (now.plan.ctx, now.plan.parallel)
        assert home.local.degraded(SERVED) == now.plan.given_up
        assert await home.chat() == 200
