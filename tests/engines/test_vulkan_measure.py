"""What the engine measures on a stub is what a load takes: layers on a device, and the rest in RAM."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from appliance.engines import measure
from appliance.engines.logparse import on_host
from appliance.gguf import read_slim
from appliance.paths import Paths
from appliance.units import MIB
from tests.engines.launches import build, launch, plan
from tests.engines.loads import buffers_of
from tests.gguf.splitting import split_header

pytestmark = pytest.mark.vulkan


@pytest.fixture(autouse=True)
def _device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GGML_VK_VISIBLE_DEVICES", "0")


@pytest.mark.parametrize(
    ("model", "layers", "ctx", "parallel"),
    [
        ("smollm2_path", 0, 2_048, 2),
        ("smollm2_path", 1, 8_192, 1),
        ("smollm2_path", 17, 2_048, 4),
        ("smollm2_path", 31, 4_096, 2),
        ("gemma3_path", 0, 4_096, 1),
        ("gemma3_path", 10, 8_192, 2),
        ("gemma3_path", 19, 2_048, 4),
    ],
)
async def test_a_split_takes_what_was_measured(
    model: str, layers: int, ctx: int, parallel: int, paths: Paths, request: pytest.FixtureRequest
) -> None:
    path: Path = request.getfixturevalue(model)
    here, wanted = build("llama-server"), plan(gpu_layers=layers, ctx=ctx, parallel=parallel)
    rows = await measure(here, [read_slim(path).part(path.name)], wanted, paths=paths)
    assert rows is not None
    buffers = await buffers_of(here, launch(path, wanted=wanted), paths)

    device, host = rows["Vulkan0"], rows["Host"]
    there = buffers.get("Vulkan0", {})
    assert device.model / MIB == pytest.approx(there.get("model", 0.0), abs=1.0)
    assert device.context / MIB == pytest.approx(there.get("kv", 0.0), abs=1.0)
    assert device.compute / MIB == pytest.approx(there.get("compute", 0.0), abs=1.0)
    assert host.context / MIB == pytest.approx(in_ram(buffers, "kv"), abs=1.0)
    assert host.compute / MIB == pytest.approx(in_ram(buffers, "compute"), abs=1.0)


def in_ram(buffers: Mapping[str, Mapping[str, float]], purpose: str) -> float:
    return sum(sizes.get(purpose, 0.0) for name, sizes in buffers.items() if on_host(name))


async def test_a_split_model_is_measured_like_one_file(gemma3_path: Path, paths: Paths) -> None:
    here, wanted = build("llama-server"), plan(gpu_layers=10, ctx=2_048)
    one = await measure(here, [read_slim(gemma3_path).part("m.gguf")], wanted, paths=paths)
    parts = split_header(gemma3_path, 3)

    assert one is not None
    assert await measure(here, parts, wanted, paths=paths, timeout_s=30) == one
