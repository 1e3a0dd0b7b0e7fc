"""A draft model and a projector on the real engines: they start, work, and take what the formulas say."""

from __future__ import annotations

import base64
import contextlib
import struct
import zlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from appliance.engines import Build, Engine, EngineKind, Launch, session
from appliance.errors import EngineFailed
from appliance.gguf import read_header
from appliance.paths import Paths
from appliance.planning import Load, Plan
from appliance.planning.memory.extras import DraftModel, projector_of
from appliance.units import MIB
from tests.engines.clip_file import Vision, write_clip
from tests.engines.launches import MODEL_ID, build, launch, plan, without_devices

KINDS: tuple[EngineKind, ...] = ("llama-server", "xllamacpp")
SEES = Vision("mlp", image=64, patch=16, embd=64, ff=128, heads=2, layers=2, out=576)
"""A projector for SmolLM2: 16 tokens for each picture."""
SHAPES = (
    Vision("qwen3vl_merger", 768, 16, 1_152, 4_304, 16, 1, 576, {"spatial_merge_size": 2}),
    Vision("qwen3vl_merger", 768, 16, 1_024, 4_096, 16, 12, 2_560, {"spatial_merge_size": 2}, (2, 5, 8)),
    Vision("qwen2vl_merger", 560, 14, 1_280, 5_120, 16, 1, 576, {"spatial_merge_size": 2}),
    Vision("gemma3", 896, 14, 1_152, 4_304, 16, 1, 576),
    Vision("internvl", 448, 14, 1_024, 4_096, 16, 1, 576, {"projector.scale_factor": 2}),
    Vision("pixtral", 1_540, 14, 1_024, 4_096, 16, 1, 576, {"spatial_merge_size": 1}),
)
"""Encoders in use (Qwen3.6, Qwen3-VL, Qwen2-VL, Gemma 3, InternVL, Pixtral), but for their depth."""


@pytest.fixture(params=KINDS)
async def here(request: pytest.FixtureRequest) -> AsyncIterator[Build]:
    with without_devices():
        yield build(request.param)


async def test_a_draft_model_runs_ahead_and_is_a_second_model_with_the_same_context(
    here: Build, smollm2_path: Path, paths: Paths
) -> None:
    engine = Engine(here, drafted(smollm2_path, plan(ctx=1_024)), paths=paths)
    await engine.start()
    told = {"prompt": "1 2 3 4 5 6 7 8 9", "n_predict": 12, "temperature": 0, "cache_prompt": False}
    timings = (await answer(engine, "/completion", told))["timings"]
    buffers = engine.snapshot.buffers
    await engine.stop()
    assert timings["draft_n"] > 0
    assert timings["draft_n_accepted"] == timings["draft_n"]  # the same model proposes and checks
    takes = DraftModel(read_header(smollm2_path)).in_ram(Load(1_024, 2, 512, "f16", "f16", 2))
    assert sizes(engine, "KV buffer size") == [pytest.approx(takes.kv / MIB, abs=0.01)] * 2
    assert sizes(engine, "compute buffer size")[1] == pytest.approx(takes.host_compute / MIB, rel=0.15)
    assert buffers["CPU"]["kv"] == pytest.approx(takes.kv / MIB, abs=0.01)  # the model's own, once


async def test_a_model_with_a_projector_answers_about_a_picture(
    here: Build, smollm2_path: Path, paths: Paths
) -> None:
    eyes = write_clip(paths.data / "mmproj.gguf", SEES)
    engine = Engine(here, seeing(smollm2_path, eyes), paths=paths)
    await engine.start()
    assert (await answer(engine, "/props"))["modalities"]["vision"] is True
    said = await answer(engine, "/v1/chat/completions", question_about(picture()))
    await engine.stop()
    assert said["usage"]["completion_tokens"] == 4
    assert said["usage"]["prompt_tokens"] > 16  # those of the picture are among them


async def test_what_the_plan_gave_up_is_not_loaded(here: Build, smollm2_path: Path, paths: Paths) -> None:
    eyes = write_clip(paths.data / "mmproj.gguf", SEES)
    engine = Engine(here, replace(launch(smollm2_path), mmproj=eyes, draft=smollm2_path), paths=paths)
    await engine.start()
    assert not (await answer(engine, "/props"))["modalities"]["vision"]
    await engine.stop()
    assert "clip_ctx" not in log_of(engine)
    assert "loading draft model" not in log_of(engine)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape.kind}-{shape.layers}")
async def test_an_encoder_takes_what_the_formula_says(
    shape: Vision, smollm2_path: Path, paths: Paths
) -> None:
    eyes = write_clip(paths.data / "mmproj.gguf", shape)
    with without_devices():
        engine = Engine(build("llama-server"), seeing(smollm2_path, eyes), paths=paths)
        await engine.start()
        with contextlib.suppress(EngineFailed):  # SmolLM2 lacks the tokens that some put around a picture
            await engine.wait_ready()
        await engine.stop()
    said = projector_of(read_header(eyes))
    assert sizes(engine, "compute buffer size")[1] == pytest.approx(said.at_start / MIB, rel=0.02)
    assert said.weights / MIB == pytest.approx(weights_in(engine), abs=0.01)


def drafted(model: Path, wanted: Plan) -> Launch:
    return replace(launch(model, wanted=replace(wanted, draft="cpu")), draft=model)


def seeing(model: Path, eyes: Path) -> Launch:
    return replace(launch(model, wanted=replace(plan(), mmproj="cpu")), mmproj=eyes)


async def answer(engine: Engine, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """What a ready engine answers."""
    async with session(await engine.wait_ready()) as client:
        got = await (client.get(path) if body is None else client.post(path, json=body))
        assert got.status == 200, await got.text()
        document: dict[str, Any] = await got.json()
        return document


def log_of(engine: Engine) -> str:
    return "\n".join(line.line for line in engine.lines(limit=2_000))


def sizes(engine: Engine, what: str) -> list[float]:
    """MiB of all log lines that hold `what = N MiB`, in their order."""
    lines = log_of(engine).splitlines()
    return [float(line.split(what)[1].split("=")[1].split()[0]) for line in lines if f"{what} =" in line]


def weights_in(engine: Engine) -> float:
    """MiB of the projector as its loader says it."""
    (line,) = (line for line in log_of(engine).splitlines() if "load_hparams: model size:" in line)
    return float(line.split()[-2])


def question_about(url: str) -> dict[str, Any]:
    parts = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": url}}]
    return {"model": MODEL_ID, "max_tokens": 4, "messages": [{"role": "user", "content": parts}]}


def picture() -> str:
    """A red square of 16 pixels as a `data:` address."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 16, 16, 8, 2, 0, 0, 0)
    rows = zlib.compress(b"".join(b"\0" + b"\xff\0\0" * 16 for _ in range(16)))
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(png).decode()
