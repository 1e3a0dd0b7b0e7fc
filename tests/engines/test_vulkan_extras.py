"""Projector, draft model and experts on a device, and off it when the plan says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from appliance.engines import Engine, EngineSnapshot, Launch, measure
from appliance.gguf import read_header
from appliance.paths import Paths
from appliance.planning import DeviceMemory, Load, MemoryPlan, Plan
from appliance.planning.memory.extras import DraftModel, projector_of
from appliance.units import MIB
from tests.engines.clip_file import Vision, write_clip
from tests.engines.launches import build, launch, plan
from tests.engines.moe_file import EXPERT_BYTES, write_moe
from tests.engines.test_extras import log_of, sizes
from tests.gguf.stubs import stub_parts

pytestmark = pytest.mark.vulkan
EYES = Vision("qwen3vl_merger", 768, 16, 1_024, 3_072, 16, 1, 576, {"spatial_merge_size": 2})
"""No tensor of its graph is larger than the 128 MiB that this device takes."""
DEVICE = DeviceMemory("Vulkan0", "llvmpipe", "vulkan", None, None, software=True, max_tensor=128 * MIB)


@pytest.fixture(autouse=True)
def _device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GGML_VK_VISIBLE_DEVICES", "0")


def in_ram(**changes: object) -> Plan:
    """The model itself keeps off the device: what is seen there is the rest."""
    wanted = plan()
    return replace(wanted, flags=(*wanted.flags, "-dev", "none"), **changes)  # type: ignore[arg-type]


async def ran(what: Launch, paths: Paths) -> tuple[Engine, EngineSnapshot]:
    """An engine that was ready and is stopped again, and what it was like then."""
    engine = Engine(build("llama-server"), what, paths=paths)
    await engine.start()
    await engine.wait_ready()
    ready = engine.snapshot
    await engine.stop()
    return engine, ready


async def test_a_projector_takes_the_device_and_keeps_the_picture_in_ram(
    smollm2_path: Path, paths: Paths
) -> None:
    eyes = write_clip(paths.data / "mmproj.gguf", EYES)
    engine, ready = await ran(replace(launch(smollm2_path, wanted=in_ram(mmproj="gpu")), mmproj=eyes), paths)
    assert "CLIP using Vulkan0 backend" in log_of(engine)
    _, device, host = sizes(engine, "compute buffer size")
    said = projector_of(read_header(eyes))
    assert device == pytest.approx(said.at_start / MIB, rel=0.02)
    assert "Vulkan0" not in ready.buffers  # which are those of the model
    assert host <= said.host / MIB < 2 * host  # the largest picture has about twice the pixels of the first


async def test_a_projector_that_is_planned_for_ram_keeps_off_the_device(
    smollm2_path: Path, paths: Paths
) -> None:
    eyes = write_clip(paths.data / "mmproj.gguf", EYES)
    engine, _ = await ran(replace(launch(smollm2_path, wanted=in_ram(mmproj="cpu")), mmproj=eyes), paths)
    assert "CLIP using CPU backend" in log_of(engine)
    assert len(sizes(engine, "Vulkan0 compute buffer size")) == 0


@pytest.mark.parametrize("where", ["gpu", "cpu"])
async def test_a_draft_model_goes_where_it_is_planned(where: str, smollm2_path: Path, paths: Paths) -> None:
    place = MemoryPlan("Vulkan0", None, None, 0, 0, 0, 0, 0, None)
    wanted = in_ram(draft=where, devices=(place,) if where == "gpu" else ())
    engine, ready = await ran(replace(launch(smollm2_path, wanted=wanted), draft=smollm2_path), paths)
    assert ready.gpu_layers == 0  # of the model itself
    on_device = [sizes(engine, f"Vulkan0 {what} buffer size") for what in ("model", "KV", "compute")]
    if where == "cpu":
        assert on_device == [[], [], []]
        return
    takes = DraftModel(read_header(smollm2_path)).on_device(Load(512, 2, 512, "f16", "f16", 2), DEVICE)
    assert on_device[0] == [pytest.approx(takes.model / MIB, abs=0.01)]
    assert on_device[1] == [pytest.approx(takes.kv / MIB, abs=0.01)]
    assert on_device[2] == [pytest.approx(takes.compute / MIB, rel=0.15)]


@pytest.mark.parametrize("blocks", [1, 4, 6])
async def test_experts_of_the_first_blocks_move_to_ram(blocks: int, paths: Paths) -> None:
    parts = stub_parts(write_moe(paths.data / "moe.gguf"))
    wanted = plan(gpu_layers=7, ctx=2_048)
    less = replace(wanted, cpu_moe=blocks, flags=(*wanted.flags, "-ncmoe", str(blocks)))
    before = await measure(build("llama-server"), parts, wanted, paths=paths)
    after = await measure(build("llama-server"), parts, less, paths=paths)
    assert before is not None
    assert after is not None
    moved = blocks * EXPERT_BYTES / MIB
    assert (before["Vulkan0"].model - after["Vulkan0"].model) / MIB == pytest.approx(moved, abs=1)
    assert (after["Host"].model - before["Host"].model) / MIB == pytest.approx(moved, abs=1)
    assert after["Vulkan0"].context == before["Vulkan0"].context
    shares = replace(wanted, tensor_split=(3, 1), flags=(*wanted.flags, "-ts", "3,1"))
    assert await measure(build("llama-server"), parts, shares, paths=paths) == before  # with one device
