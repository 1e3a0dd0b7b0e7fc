"""Models that are more than text: adapters, vectors and scores, each on the real engines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from appliance.engines import Adapter, Build, Engine, EngineKind, Launch, session
from appliance.errors import EngineFailed
from appliance.gguf import read_header
from appliance.paths import Paths
from appliance.planning.memory.lora import lora_of
from appliance.units import MIB
from tests.engines.bert_file import CLS, EMBD, RANK, write_bert
from tests.engines.launches import MODEL_ID, build, launch, plan, without_devices
from tests.engines.lora_file import write_lora

pytestmark = pytest.mark.slow

KINDS: tuple[EngineKind, ...] = ("llama-server", "xllamacpp", "llama-cpp-python")
QUESTION = {"model": MODEL_ID, "prompt": "The capital of France is", "max_tokens": 10, "temperature": 0}
LONG = "the cat sits on the mat " * 100


@pytest.fixture(params=KINDS)
async def here(request: pytest.FixtureRequest) -> AsyncIterator[Build]:
    with without_devices():
        yield build(request.param)


@pytest.fixture(params=KINDS[:2])
async def native(request: pytest.FixtureRequest) -> AsyncIterator[Build]:
    """Those that are llama.cpp's own server."""
    with without_devices():
        yield build(request.param)


class TestAdapters:
    async def test_an_adapter_changes_what_is_said_and_at_scale_0_nothing(
        self, here: Build, smollm2_path: Path, paths: Paths
    ) -> None:
        file = write_lora(paths.data / "a.gguf")
        plain = await said(here, launch(smollm2_path), paths)
        assert await said(here, adapted(smollm2_path, (file, 0.0)), paths) == plain
        assert await said(here, adapted(smollm2_path, (file, 5.0)), paths) != plain

    async def test_several_adapters_with_odd_names_are_applied_together(
        self, native: Build, smollm2_path: Path, paths: Paths
    ) -> None:
        one = write_lora(paths.data / 'one, "two".gguf')
        other = write_lora(paths.data / "other, too.gguf", seed=9)
        more = write_lora(paths.data / "more.gguf", seed=11)
        told = adapted(smollm2_path, (one, 1.0), (other, 0.25), (more, 0.5))
        async with running(native, told, paths) as (engine, client):
            listed = await (await client.get("/lora-adapters")).json()
            log = log_of(engine)
        assert {row["path"]: row["scale"] for row in listed} == {
            str(one): 1.0,
            str(other): 0.25,
            str(more): 0.5,
        }
        planned = lora_of(read_header(one), read_header(smollm2_path), "x")
        sizes = [float(line.split("=")[1].split()[0]) for line in log.splitlines() if "LoRA buffer" in line]
        assert sum(sizes) == pytest.approx(3 * planned.n_bytes / MIB, abs=0.02)

    async def test_an_adapter_of_another_model_ends_the_load(
        self, native: Build, smollm2_path: Path, paths: Paths
    ) -> None:
        """What is not found out by its header, the engine finds."""
        file = write_lora(paths.data / "a.gguf", {"blk.0.attn_q": (576, 64)})
        engine = Engine(native, adapted(smollm2_path, (file, 1.0)), paths=paths)
        await engine.start()
        with pytest.raises(EngineFailed) as caught:
            await engine.wait_ready()
        await engine.stop()
        assert "incorrect shape" in "\n".join(caught.value.lines)

    async def test_what_llama_cpp_python_can_t_apply_is_refused(
        self, smollm2_path: Path, paths: Paths
    ) -> None:
        file = write_lora(paths.data / "a.gguf")
        engine = Engine(
            build("llama-cpp-python"), adapted(smollm2_path, (file, 1.0), (file, 0.5)), paths=paths
        )
        await engine.start()
        with pytest.raises(EngineFailed, match="can't apply several adapters"):
            await engine.wait_ready()
        await engine.stop()

    async def test_a_scale_and_a_colon_don_t_go_together_on_a_command_line(
        self, smollm2_path: Path, paths: Paths
    ) -> None:
        file = write_lora(paths.data / "a:b.gguf")
        engine = Engine(build("llama-server"), adapted(smollm2_path, (file, 0.5)), paths=paths)
        await engine.start()
        with pytest.raises(EngineFailed) as caught:
            await engine.wait_ready()
        await engine.stop()
        assert "colon" in (caught.value.cause or "")
        assert await said(build("xllamacpp"), adapted(smollm2_path, (file, 0.0)), paths)


class TestReranking:
    async def test_a_reranker_scores_documents(self, native: Build, paths: Paths) -> None:
        model = write_bert(paths.data / "rank.gguf", RANK)
        async with running(native, replace(launch(model), reranking=True), paths) as (engine, client):
            body = {"query": "where is the cat", "documents": ["the cat sits on the mat", "the sky is blue"]}
            answer = await client.post("/v1/rerank", json=body)
            rows = (await answer.json())["results"]
            again = await asyncio.gather(*(client.post("/v1/rerank", json=body) for _ in range(8)))
            many = await client.post("/v1/rerank", json={"query": "hi", "documents": ["the cat " * 60] * 12})
            restarts = engine.snapshot.restarts
        assert {row["index"] for row in rows} == {0, 1}
        assert rows[0]["relevance_score"] != rows[1]["relevance_score"]
        assert [one.status for one in again] == [200] * 8
        assert (many.status, restarts) == (200, 0)  # together they are longer than a micro-batch

    async def test_llama_cpp_python_has_no_address_for_scores(self, paths: Paths) -> None:
        model = write_bert(paths.data / "rank.gguf", RANK)
        told = replace(launch(model), reranking=True)
        engine = Engine(build("llama-cpp-python"), told, paths=paths)
        await engine.start()
        with pytest.raises(EngineFailed, match="can't serve a model for reranking"):
            await engine.wait_ready()
        await engine.stop()


class TestEmbeddings:
    async def test_pooling_is_the_model_s_own_unless_it_has_none(self, here: Build, paths: Paths) -> None:
        model = write_bert(paths.data / "cls.gguf", CLS)
        own = await vector(here, replace(launch(model), embedding=True), paths)
        first = await vector(here, replace(launch(model), embedding=True, pooling="cls"), paths)
        mean = await vector(here, replace(launch(model), embedding=True, pooling="mean"), paths)
        assert len(own) == EMBD
        assert own == pytest.approx(first, abs=1e-6)
        assert own != pytest.approx(mean, abs=1e-3)

    async def test_what_is_too_long_is_refused_and_never_cut(
        self, here: Build, smollm2_path: Path, paths: Paths
    ) -> None:
        told = launch(smollm2_path, embedding=True, wanted=plan(ctx=1_024))
        async with running(here, told, paths) as (engine, client):
            refused = await client.post("/v1/embeddings", json={"model": MODEL_ID, "input": LONG})
            text = await refused.text()
            after = await client.post("/v1/embeddings", json={"model": MODEL_ID, "input": "a cat"})
            restarts = engine.snapshot.restarts
        assert refused.status == 500, text
        assert "too large to process" in text or "exceed batch size" in text
        assert (after.status, restarts) == (200, 0)

    async def test_a_longer_micro_batch_takes_it(self, here: Build, smollm2_path: Path, paths: Paths) -> None:
        wanted = plan(ctx=1_024)
        flags = list(wanted.flags)
        flags[flags.index("-ub") + 1] = "1024"
        wanted = replace(wanted, n_ubatch=1_024, n_batch=1_024, flags=(*flags, "-b", "1024"))
        told = launch(smollm2_path, embedding=True, wanted=wanted)
        async with running(here, told, paths) as (_, client):
            taken = await client.post("/v1/embeddings", json={"model": MODEL_ID, "input": LONG})
            count = (await taken.json())["usage"]["prompt_tokens"]
        assert (taken.status, count > 512) == (200, True)


def adapted(model: Path, *files: tuple[Path, float]) -> Launch:
    return replace(launch(model), lora=tuple(Adapter(path, "0" * 64, scale) for path, scale in files))


@asynccontextmanager
async def running(build_: Build, told: Launch, paths: Paths) -> AsyncIterator[tuple[Engine, Any]]:
    """A ready engine and a client of it."""
    engine = Engine(build_, told, paths=paths)
    await engine.start()
    try:
        async with session(await engine.wait_ready()) as client:
            yield engine, client
    finally:
        await engine.stop()


async def said(build_: Build, told: Launch, paths: Paths) -> str:
    async with running(build_, told, paths) as (_, client):
        answer = await client.post("/v1/completions", json=QUESTION)
        assert answer.status == 200, await answer.text()
        return str((await answer.json())["choices"][0]["text"])


async def vector(build_: Build, told: Launch, paths: Paths) -> list[float]:
    async with running(build_, told, paths) as (_, client):
        answer = await client.post("/v1/embeddings", json={"model": MODEL_ID, "input": "the cat sits"})
        assert answer.status == 200, await answer.text()
        found: list[float] = (await answer.json())["data"][0]["embedding"]
        return found


def log_of(engine: Engine) -> str:
    return "\n".join(line.line for line in engine.lines(limit=5_000))
