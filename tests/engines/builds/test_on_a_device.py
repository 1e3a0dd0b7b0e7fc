"""The test load on a device: the Vulkan one that is made of the CPU."""

from __future__ import annotations

import os
from pathlib import Path
from unittest import mock

import pytest

from appliance import settings
from appliance.engines import discover
from appliance.engines.builds.testload import try_build
from appliance.paths import Paths
from tests.engines.binaries import llama_server

pytestmark = [pytest.mark.vulkan, pytest.mark.timeout(400)]


async def test_every_layer_of_the_test_model_goes_to_the_device(paths: Paths) -> None:
    with mock.patch.dict(os.environ, {"GGML_VK_VISIBLE_DEVICES": "0"}):
        builds = await discover(settings.Engine(llama_server=str(llama_server())))
        (device,) = builds[0].devices
        tested = await try_build(builds[0], paths, device=device)
    assert (tested.ok, tested.device) == (True, device.description)
    assert "offloaded 3/3 layers to GPU" in _log(paths)


async def test_a_software_device_is_never_taken_by_itself(paths: Paths) -> None:
    with mock.patch.dict(os.environ, {"GGML_VK_VISIBLE_DEVICES": "0"}):
        builds = await discover(settings.Engine(llama_server=str(llama_server())))
        tested = await try_build(builds[0], paths)
    assert (tested.ok, tested.device) == (True, "CPU")


def _log(paths: Paths) -> str:
    return "".join(file.read_text() for file in Path(paths.logs).rglob("*") if file.is_file())
