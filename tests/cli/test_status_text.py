"""The lines of `appliance status` that stand side by side say the same."""

from __future__ import annotations

from typing import Any

from appliance.cli.status_text import status_lines
from appliance.client import StatusSnapshot

SOFTWARE = {"name": "Vulkan0", "description": "llvmpipe (LLVM 15)", "software": True}


def lines(gpu_layers: int, devices: list[dict[str, Any]]) -> str:
    engine = {"id": "m", "state": "ready", "build": "b", "gpu_layers": gpu_layers, "n_layer": 30}
    document = {"daemon": {"url": "http://127.0.0.1:1", "pid": 1}, "gpus": []}
    return "\n".join(
        status_lines(StatusSnapshot.parse({**document, "engines": [engine | {"devices": devices}]}))
    )


def test_a_device_made_of_the_cpu_is_called_so_on_both_lines() -> None:
    text = lines(31, [SOFTWARE])
    assert "31 of 31 layers on Vulkan0 " in text
    assert "on the GPU" not in text
    assert "running on CPU" not in text
    assert "Vulkan0: llvmpipe (LLVM 15), made of the CPU" in text


def test_a_gpu_without_sensors_is_not_called_absent() -> None:
    text = lines(31, [{"name": "Vulkan0", "description": "Some GPU", "software": False}])
    assert "31 of 31 layers on the GPU" in text
    assert "running on CPU" not in text
    assert "the engine uses Vulkan0: Some GPU" in text


def test_without_a_gpu_it_runs_on_the_cpu() -> None:
    assert "GPU       none found: running on CPU" in lines(0, [])
    assert "GPU       none found: running on CPU" in lines(0, [SOFTWARE]), "it has no layer there"
