"""From wishes and settings to the planner's request, and the way down when the engine measures more."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from appliance.engines import Build, Choice
from appliance.errors import DoesNotFit
from appliance.hardware import Machine
from appliance.operations import plan as planning
from appliance.operations.plan import Wishes, plan_file, request_for, require_fit
from appliance.operations.survey import Survey
from appliance.paths import Paths
from appliance.planning import DeviceMemory, MeasuredRow, Plan
from appliance.settings import Engine, Settings
from appliance.units import GIB, MIB


def survey(free: int, kind: str = "llama-server") -> Survey:
    device = DeviceMemory("CUDA0", "Some GPU", "cuda", 8 * GIB, free)
    build = Build(kind, "/x", "b10434", "llama-server b10434", (device,), True)  # type: ignore[arg-type]
    machine = Machine(
        gpus=(), ram_total=32 * GIB, ram_available=24 * GIB, cores_physical=8, cores_logical=16,
        battery=None, cpu_name=None, notes=(),
    )  # fmt: skip
    return Survey(machine, (build,), Choice(build, "the only one"), None)


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(*(tmp_path / name for name in ("config", "data", "state", "cache", "run"))).make()


def test_a_wish_wins_over_the_setting_and_the_setting_over_auto() -> None:
    settings = Settings(engine=Engine(ctx=4096, parallel="auto"))
    request = request_for(settings, Wishes(ctx=2048))
    assert (request.ctx, request.parallel, request.gpu_layers) == (2048, None, None)
    assert request_for(settings, Wishes()).ctx == 4096
    assert request_for(settings, Wishes()).reserve == 512 * MIB


async def test_when_the_engine_measures_more_than_there_is_layers_go_until_it_fits(
    monkeypatch: pytest.MonkeyPatch, smollm2_path: Path, paths: Paths
) -> None:
    asked: list[int] = []

    async def measure(
        build: Build, parts: object, plan: Plan, *, paths: Paths, embedding: bool
    ) -> Mapping[str, MeasuredRow]:
        asked.append(plan.gpu_layers)
        # this engine needs 40 MiB a layer: far more than the formulas say
        return {
            "CUDA0": MeasuredRow(40 * MIB * plan.gpu_layers, 0, 0),
            "Host": MeasuredRow(100 * MIB, 0, 10 * MIB),
        }

    monkeypatch.setattr(planning, "measure", measure)
    request = request_for(Settings(), Wishes(ctx=1024, parallel=1))
    looked = survey(free=512 * MIB + 350 * MIB + 400 * MIB)
    plan = await plan_file(smollm2_path, model="m", looked=looked, request=request, paths=paths)
    assert plan.fits
    assert plan.measured
    assert asked[0] == 31
    assert asked == sorted(asked, reverse=True)
    assert len(asked) <= planning.MAX_STEPS
    assert plan.gpu_layers == asked[-1] < 31
    assert any("measured more than computed" in reason.text for reason in plan.reasons)


async def test_an_explicit_number_of_layers_is_never_changed(
    monkeypatch: pytest.MonkeyPatch, smollm2_path: Path, paths: Paths
) -> None:
    async def measure(
        build: Build, parts: object, plan: Plan, *, paths: Paths, embedding: bool
    ) -> Mapping[str, MeasuredRow]:
        return {"CUDA0": MeasuredRow(7 * GIB, 0, 0), "Host": MeasuredRow(100 * MIB, 0, 10 * MIB)}

    monkeypatch.setattr(planning, "measure", measure)
    request = request_for(Settings(), Wishes(ctx=1024, parallel=1, gpu_layers=20))
    plan = await plan_file(smollm2_path, model="m", looked=survey(free=2 * GIB), request=request, paths=paths)
    assert plan.gpu_layers == 20
    assert not plan.fits
    with pytest.raises(DoesNotFit) as caught:
        require_fit(plan)
    assert caught.value.exit_code == 5
    assert caught.value.hint


async def test_an_engine_that_cannot_be_asked_leaves_a_computed_plan_that_says_so(
    monkeypatch: pytest.MonkeyPatch, smollm2_path: Path, paths: Paths
) -> None:
    async def measure(build: Build, parts: object, plan: Plan, *, paths: Paths, embedding: bool) -> None:
        return None

    monkeypatch.setattr(planning, "measure", measure)
    request = request_for(Settings(), Wishes())
    plan = await plan_file(smollm2_path, model="m", looked=survey(free=6 * GIB), request=request, paths=paths)
    assert plan.fits
    assert not plan.measured
    assert plan.gpu_layers == 31


async def test_llama_cpp_python_gets_one_slot_and_the_plan_says_why(smollm2_path: Path, paths: Paths) -> None:
    request = request_for(Settings(), Wishes(parallel=4))
    plan = await plan_file(
        smollm2_path, model="m", looked=survey(6 * GIB, "llama-cpp-python"), request=request, paths=paths
    )
    assert plan.parallel == 1
    assert any("one request at a time" in reason.text for reason in plan.reasons)
