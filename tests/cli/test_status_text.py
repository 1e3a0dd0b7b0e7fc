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


def of_engine(**engine: Any) -> str:
    row = {"id": "m", "build": "b", "n_layer": 30, "gpu_layers": 0, "devices": [], **engine}
    document = {"daemon": {"url": "http://127.0.0.1:1", "pid": 1}, "gpus": [], "engines": [row]}
    return "\n".join(status_lines(StatusSnapshot.parse(document)))


def test_a_load_says_how_long_it_takes_and_how_that_is_known() -> None:
    assert "usually 3 s" in of_engine(state="loading", load_estimate_s=3.2, load_estimate_how="seen")
    assert "takes about 40 s" in of_engine(state="starting", load_estimate_s=40.0, load_estimate_how="rough")
    assert "takes" not in of_engine(state="loading", load_estimate_s=None)


def test_a_load_stands_beside_what_its_disk_gives_unless_it_came_from_ram() -> None:
    speeds = {"load_bytes_per_s": 100 << 20, "disk_bytes_per_s": 3 << 29}
    cold = of_engine(state="ready", load_s=9.0, **speeds)
    assert "loaded in 9 s at 100.0 MiB/s, the disk gives 1.50 GiB/s" in cold
    warm = of_engine(state="ready", load_s=2.0, **{**speeds, "load_bytes_per_s": None})
    assert "loaded in 2 s" in warm
    assert "disk" not in warm
    assert "loaded" not in of_engine(state="ready", load_s=None, **speeds)


def test_after_a_person_stopped_all_it_says_so_and_what_to_do() -> None:
    document = {"daemon": {"url": "http://127.0.0.1:1", "pid": 1}, "gpus": [], "engines": []}
    halted = "\n".join(status_lines(StatusSnapshot.parse(document | {"halted": True})))
    assert "stopped by a person: requests load nothing until" in halted
    assert "`appliance models load MODEL` (or key r in the UI)" in halted
    assert "person" not in "\n".join(status_lines(StatusSnapshot.parse(document | {"halted": False})))
