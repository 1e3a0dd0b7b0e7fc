"""Layers that really are on a device: Mesa's llvmpipe, which the engine sees as `Vulkan0`."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance import settings
from appliance.engines import Engine, choose, discover, measure
from appliance.paths import Paths
from appliance.units import MIB
from tests.engines.binaries import llama_server
from tests.engines.launches import launch, plan
from tests.gguf.stubs import stub_parts

pytestmark = pytest.mark.vulkan


@pytest.fixture(autouse=True)
def _device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GGML_VK_VISIBLE_DEVICES", "0")


async def test_twelve_layers_are_offloaded_read_back_and_measured(smollm2_path: Path, paths: Paths) -> None:
    builds = await discover(settings.Engine(llama_server=str(llama_server())))
    server = choose(builds, "llama-server").build
    wanted = plan(gpu_layers=12, ctx=1024)
    rows = await measure(server, stub_parts(smollm2_path), wanted, paths=paths)
    assert rows is not None
    engine = Engine(server, launch(smollm2_path, wanted=wanted), paths=paths)
    await engine.start()
    await engine.wait_ready()
    snapshot = engine.snapshot
    await engine.stop()
    assert (snapshot.gpu_layers, snapshot.n_layer, snapshot.ctx) == (12, 30, 1024)
    device = snapshot.buffers["Vulkan0"]
    assert device["model"] == pytest.approx(51.94, abs=0.01)
    assert rows["Vulkan0"].model / MIB == pytest.approx(device["model"], abs=1.0)
    assert rows["Vulkan0"].context / MIB == pytest.approx(device["kv"], abs=1.0)
    assert rows["Vulkan0"].compute / MIB == pytest.approx(device["compute"], abs=1.0)
    assert rows["Host"].context / MIB == pytest.approx(snapshot.buffers["CPU"]["kv"], abs=1.0)


async def test_a_software_device_is_seen_and_is_no_gpu() -> None:
    builds = await discover(settings.Engine(llama_server=str(llama_server())))
    server = next(build for build in builds if build.kind == "llama-server")
    (device,) = server.devices
    assert (device.name, device.backend, device.software) == ("Vulkan0", "vulkan", True)
    assert device.max_tensor == 128 * MIB
    assert not server.sees_gpu
    assert choose(builds, "auto").build.kind == "xllamacpp"
