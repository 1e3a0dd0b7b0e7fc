"""Tuning with the real engines: settings reach them, speeds come back, nothing is left running."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from appliance import settings as settings_of
from appliance.engines import Build, Engine, EngineKind, Launch, session
from appliance.errors import EngineError, NotVerified
from appliance.gguf import read_slim
from appliance.hardware import Machine
from appliance.operations.models import Library
from appliance.operations.plans.wishes import Wishes
from appliance.operations.tuning import bench as door
from appliance.operations.tuning.candidates import ENGINE, PLAN, Candidate, candidates
from appliance.operations.tuning.knobs import Knobs, of_plan, with_knobs
from appliance.operations.tuning.measuring import Bench, Work, measured, prompt_of
from appliance.operations.tuning.tuning import Aim, Outcome, tune
from appliance.paths import Paths
from appliance.planning import HostMemory, Plan, PlanRequest, make_plan
from appliance.units import GIB
from tests.cli.indoors import Indoors
from tests.engines.fake_engine import install
from tests.engines.launches import build, without_devices

TINY = Work(prompt=8, decode=2, repeats=1, many_repeats=1)
VOCABULARY = 49_152
"""Of SmolLM2."""


@pytest.fixture(params=("xllamacpp", "llama-server"))
def here(request: pytest.FixtureRequest) -> Iterator[Build]:
    with without_devices():
        kind: EngineKind = request.param
        yield build(kind)


def bench_of(here: Build, model: Path, paths: Paths, *, kv_type: str = "f16") -> Bench:
    host = HostMemory(8 * GIB, 6 * GIB, 2)
    plan = make_plan(
        read_slim(model).header, (), host, PlanRequest(ctx=512, parallel=2, kv_type=kv_type),
        model="m", engine_build=here.build,
    )  # fmt: skip
    return Bench(here, plan, "m", model, VOCABULARY, paths.make())


def engines_of_ours() -> list[psutil.Process]:
    """Engines below this process: a child of the package, or a server."""
    names = ("xllamacpp_child", "llama-server")
    children = psutil.Process().children(recursive=True)
    return [child for child in children if any(name in " ".join(child.cmdline()) for name in names)]


async def test_every_setting_reaches_the_engine(here: Build, smollm2_path: Path, paths: Paths) -> None:
    bench = bench_of(here, smollm2_path, paths)
    plan = with_knobs(bench.plan, Knobs(2, 1, 256, 128, "off"))
    engine = Engine(here, Launch("m", smollm2_path, replace(plan, cache_reuse=0)), paths=bench.paths)
    await engine.start()
    try:
        await engine.wait_ready()
        said = " ".join(" ".join(line.line.split()) for line in engine.lines(0, 10_000))
    finally:
        await engine.stop()
    assert "n_threads = 2 (n_threads_batch = 1)" in said
    assert "n_batch = 256" in said
    assert "n_ubatch = 128" in said
    assert "flash_attn = disabled" in said


async def test_speeds_come_from_the_engine_and_it_is_gone_after(
    here: Build, smollm2_path: Path, paths: Paths
) -> None:
    bench = bench_of(here, smollm2_path, paths)
    speeds = await measured(bench, bench.plan, TINY)
    assert speeds.prefill > 0
    assert speeds.decode > 0
    assert speeds.many is not None
    assert engines_of_ours() == []


async def test_settings_that_do_not_start_are_out_and_the_rest_goes_on(
    smollm2_path: Path, paths: Paths
) -> None:
    """A quantised cache without flash attention: the engine refuses to make the context."""
    bench = bench_of(build("xllamacpp"), smollm2_path, paths, kv_type="q8_0")
    own = of_plan(bench.plan)
    tried = [
        *candidates(bench.plan, Machine())[:2],
        Candidate("bad", replace(own, flash_attn="off"), "flash"),
    ]
    outcome = await tune(bench, tried, Aim(rounds=1, work=TINY))
    assert set(outcome.failed) == {"bad"}
    assert "bad" not in outcome.speeds
    assert outcome.kept.name in (ENGINE, PLAN)
    assert engines_of_ours() == []


async def test_bytes_that_may_not_be_served_are_not_measured(smollm2_path: Path, paths: Paths) -> None:
    async def refuse() -> None:
        raise NotVerified("The file has changed.")

    bench = replace(bench_of(build("xllamacpp"), smollm2_path, paths), prove=refuse)
    with pytest.raises(NotVerified):
        await measured(bench, bench.plan, TINY)


async def test_an_answer_without_timings_is_an_error(
    smollm2_path: Path, paths: Paths, tmp_path: Path
) -> None:
    fake = install(tmp_path / "fake")
    bench = replace(bench_of(build("xllamacpp"), smollm2_path, paths), build=fake)
    with pytest.raises(EngineError) as raised:
        await measured(bench, bench.plan, TINY)
    assert raised.value.cause == "its reply has no timings"


async def test_short_pauses_take_a_smaller_batch_on_a_slow_machine(smollm2_path: Path, paths: Paths) -> None:
    """A goal that no machine reaches with whole batches: the least batch is measured and kept."""
    bench = bench_of(build("xllamacpp"), smollm2_path, paths)
    aim = Aim("latency", pause_s=1e-6, rounds=1, work=TINY)
    outcome = await tune(bench, candidates(bench.plan, Machine())[:2], aim)
    assert (outcome.kept.knobs.n_batch, outcome.kept.knobs.n_ubatch) == (32, 32)
    assert outcome.entry(5.0).goal == "latency"
    assert outcome.pause is not None
    assert outcome.pause.wanted == 32


def test_what_was_measured_stands_in_the_next_plan(smollm2_path: Path, tmp_path: Path) -> None:
    """From a model that a user took in to `appliance plan`, by way of the file that is kept."""
    home = Indoors(tmp_path / "h")
    assert home.run("models", "import", str(smollm2_path)).code == 0
    folders = [home.root / name for name in ("config", "data", "state", "cache", "run")]
    library = Library.open(Paths(*folders), settings_of.load(home.root / "config" / "config.toml"))
    prepared, outcome = asyncio.run(measured_smaller(library))
    assert door.keep(prepared, outcome)
    document = door.document(prepared, outcome, kept=True)
    assert document["rows"][0]["ratios"]["prefill"] == 1.0
    planned = home.run("plan", prepared.ref.ref, "--ctx", "512", "--parallel", "2", "--json").document
    assert planned["n_ubatch"] == 64
    assert any(reason["code"] == "tuned" for reason in planned["reasons"])
    wished = home.run("plan", prepared.ref.ref, "--ctx", "512", "--ubatch", "128", "--json").document
    assert wished["n_ubatch"] == 128


async def measured_smaller(library: Library) -> tuple[door.Prepared, Outcome]:
    """A real measurement; whichever won, the smaller micro-batch is what is kept."""
    prepared = await door.prepare(library, None, Wishes(ctx=512, parallel=2, engine="xllamacpp"))
    assert [one.name for one in prepared.tried][:2] == [ENGINE, PLAN]
    smaller = Candidate("smaller", replace(of_plan(prepared.bench.plan), n_ubatch=64))
    tried = (prepared.tried[0], smaller)
    outcome = await tune(prepared.bench, tried, Aim(rounds=1, work=TINY))
    return prepared, replace(outcome, kept=smaller)


async def test_chunks_are_moved_in_the_cache_only_when_told(smollm2_path: Path, paths: Paths) -> None:
    """A part of a prompt is cut out: what stood behind it comes from the cache, or is worked on again."""
    here = build("xllamacpp")
    plan = bench_of(here, smollm2_path, paths).plan
    kept = [plan, replace(plan, cache_reuse=16, flags=(*plan.flags, "--cache-reuse", "16"))]
    assert [await cached_after_a_cut(here, smollm2_path, one, paths) for one in kept] == [8, 39]


async def cached_after_a_cut(here: Build, model: Path, plan: Plan, paths: Paths) -> int:
    """Tokens that the engine took from its cache for 8 + 32 tokens after 8 + 8 + 32 of the same."""
    ids = prompt_of(48, VOCABULARY, 1)
    engine = Engine(here, Launch("m", model, plan), paths=paths)
    try:
        await engine.start()
        async with session(await engine.wait_ready()) as client:
            cached = 0
            for prompt in (ids, ids[:8] + ids[16:]):
                body = {"prompt": prompt, "n_predict": 1, "id_slot": 0, "cache_prompt": True}
                async with client.post("/completion", json=body) as answer:
                    cached = int((await answer.json())["timings"]["cache_n"])
            return cached
    finally:
        await engine.stop()


def test_prompts_are_the_same_each_time_and_within_the_vocabulary() -> None:
    for size in (300, VOCABULARY, 262_144):
        ids = prompt_of(600, size, 3)
        assert ids == prompt_of(600, size, 3) != prompt_of(600, size, 4)
        assert 0 <= min(ids) <= max(ids) < size
        assert len(set(ids)) > 100
