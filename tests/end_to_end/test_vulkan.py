"""The GPU path on a real device: Mesa's llvmpipe, which llama-server sees as Vulkan0."""

from __future__ import annotations

from pathlib import Path

import pytest
from openai import OpenAI

from tests.end_to_end.appliance import MODEL, Home
from tests.engines.binaries import llama_server

pytestmark = [pytest.mark.vulkan, pytest.mark.timeout(400)]


@pytest.fixture
def on_path(tmp_path: Path, home: Home) -> Home:
    """The Vulkan build as `llama-server` on PATH, as a user would install it."""
    import os

    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "llama-server").symlink_to(llama_server())
    home.env["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"
    home.env["GGML_VK_VISIBLE_DEVICES"] = "0"
    return home


def test_twelve_layers_are_offloaded_and_read_back_into_status(on_path: Home) -> None:
    asked = ("--engine", "llama-server", "--gpu-layers", "12", "--ctx", "1024", "--parallel", "1")
    with on_path.up(MODEL, *asked) as up:
        assert up.ready["plan"]["gpu_layers"] == 12
        engine = up.status()["engines"][0]
        assert (engine["kind"], engine["gpu_layers"], engine["n_layer"]) == ("llama-server", 12, 30)
        assert engine["buffers"]["Vulkan0"]["model"] == pytest.approx(51.94, abs=0.01)
        log = on_path.run("logs", "-n", "2000").out
        assert "offloaded 12/31 layers to GPU" in log
        reply = OpenAI(base_url=up.url, api_key="local", max_retries=0).chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "Hi"}], max_tokens=2
        )
        assert (reply.model_extra or {})["appliance"]["route"] == "local"
        assert "degraded" not in (reply.model_extra or {})["appliance"]


def test_engines_list_shows_the_device_and_never_chooses_a_software_one(on_path: Home) -> None:
    document = on_path.run("engines", "list", "--json").document
    server = next(one for one in document["engines"] if one["kind"] == "llama-server")
    (device,) = server["devices"]
    assert (device["name"], device["software"]) == ("Vulkan0", True)
    assert "llvmpipe" in device["description"]
    assert document["chosen"]["kind"] == "xllamacpp"
    text = on_path.run("engines", "list").out
    assert "llvmpipe" in text
    assert "software" in text


def test_more_layers_than_the_model_has_are_refused_with_the_number(on_path: Home) -> None:
    done = on_path.run("plan", MODEL, "--gpu-layers", "99")
    assert done.code in (0, 2, 5)
    assert "31" in done.out + done.err
