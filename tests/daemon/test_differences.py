"""What a load became beside its plan: nothing that is less is silent, and nothing unknown is called less."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.daemon.differences import codes, differences
from appliance.daemon.served import ServingSnapshot
from appliance.daemon.status import notes
from appliance.engines import EngineSnapshot
from appliance.monitor import MonitorSnapshot
from appliance.paths import Paths
from appliance.planning import MemoryPlan, Plan
from appliance.units import MIB
from tests.daemon.house import SERVED, house, looks
from tests.engines.fake_engine import Script, install
from tests.engines.launches import paths_in
from tests.engines.launches import plan as written

CARDS = tuple(MemoryPlan(name, None, None, 0, 50 * MIB, 0, 0, 0, None) for name in ("CUDA0", "CUDA1"))
PLAN = replace(written(gpu_layers=31, ctx=4096), devices=CARDS)
BOTH = {"CUDA0": {"model": 50.0}, "CUDA1": {"model": 50.0}, "CPU_Mapped": {"model": 9.0}}


def served(
    plan: Plan = PLAN,
    *,
    layers: int | None = 31,
    ctx: int | None = 4096,
    buffers: Mapping[str, Mapping[str, float]] = BOTH,
) -> ServingSnapshot:
    engine = EngineSnapshot(
        id="m", model="m", kind="llama-server", build="b", pid=1, state="ready", gpu_layers=layers,
        n_layer=30,
        ctx=ctx, parallel=2, slots_busy=0, tokens_per_second=None, restarts=0, started_at=None, ready_at=None,
        error=None, cause=None, hint=None, last_lines=(), log_file=None, out_of_memory=None, buffers=buffers,
    )  # fmt: skip
    return ServingSnapshot(state="ready", plan=plan, engine=engine)


def test_a_load_as_planned_differs_in_nothing() -> None:
    assert differences(served()) == ()
    assert codes(served()) == ()


@pytest.mark.parametrize(
    ("snapshot", "expected"),
    [
        (served(layers=0, buffers={"CPU_Mapped": {"model": 99.0}}), ("cpu_fallback",)),
        (served(layers=20), ("fewer_layers",)),
        (served(ctx=2048), ("context_cut",)),
        (served(layers=20, ctx=2048), ("fewer_layers", "context_cut")),
        (served(buffers={"CUDA0": {"model": 90.0}}), ("cpu_fallback",)),
        (served(replace(PLAN, given_up=("context_cut", "kv_quantised"))), ("context_cut", "kv_quantised")),
        (served(replace(PLAN, given_up=("context_cut",)), ctx=2048), ("context_cut",)),
    ],
)
def test_what_is_less_has_its_code(snapshot: ServingSnapshot, expected: tuple[str, ...]) -> None:
    assert codes(snapshot) == expected


@pytest.mark.parametrize(
    "snapshot",
    [
        served(layers=None),
        served(ctx=None),
        served(buffers={}),
        served(replace(PLAN, split="row"), buffers={"CUDA_Split": {"model": 90.0}}),
        served(buffers={"OpenCL": {"model": 90.0}}),
        served(buffers={"CUDA0_Private": {"model": 9.0}, "CUDA1_Mapped": {"model": 9.0}}),
        replace(served(), engine=None),
        replace(served(), plan=None),
    ],
)
def test_what_is_not_known_is_no_difference(snapshot: ServingSnapshot) -> None:
    assert codes(snapshot) == ()


def test_a_card_that_was_planned_and_not_used_is_named() -> None:
    (found,) = differences(served(buffers={"CUDA0": {"model": 90.0}}))
    assert "CUDA1" in found.detail
    assert "CUDA0" not in found.detail
    (note,) = (one for one in notes(served(layers=20), MonitorSnapshot()) if one.code == "fewer_layers")
    assert "31" in note.detail
    assert "20" in note.detail


@pytest.fixture
def paths() -> Iterator[Paths]:
    folder = Path(tempfile.mkdtemp(prefix="appl"))
    yield paths_in(folder)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize(("accept", "degraded"), [(False, ("cpu_fallback",)), (True, ())])
async def test_an_engine_that_leaves_the_planned_gpu_alone_is_a_fallback_on_every_answer(
    paths: Paths,
    smollm2_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    accept: bool,
    degraded: tuple[str, ...],
) -> None:
    in_ram = (
        "load_tensors: offloaded 31/31 layers to GPU",
        "load_tensors:   CPU_Mapped model buffer size = 90 MiB",
    )
    card = "CUDA0: Some GPU (8192 MiB, 3000 MiB free)"
    looks(monkeypatch, [install(paths.data / "fake", Script(load_lines=in_ram), devices=[card])])
    async with house(paths, smollm2_path, accept_cpu=accept) as home:
        await home.serving.load(home.ref)
        assert home.local.degraded(SERVED) == degraded
        told = {note.code for note in notes(home.serving.snapshot, MonitorSnapshot())}
        assert "cpu_fallback" in told, "the status says it in any case"
