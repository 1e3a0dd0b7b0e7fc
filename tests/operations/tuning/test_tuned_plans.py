"""A plan takes what was tuned here: never over a wish, and only while it fits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.gguf import read_slim
from appliance.operations.lessons.learning import Lessons
from appliance.operations.machine.survey import Survey
from appliance.operations.plans.plan import plan_subject
from appliance.operations.plans.subject import Subject
from appliance.operations.tuning import tuned_file
from appliance.operations.tuning.knobs import of_plan
from appliance.operations.tuning.tuned_file import Entry
from appliance.paths import Paths
from appliance.planning import MeasuredRow, Plan, PlanRequest
from appliance.units import GIB, MIB
from tests.operations.test_plan import Asked, computed, survey

REQUEST = PlanRequest(ctx=2_048, parallel=2)


@pytest.fixture
def subject(smollm2_path: Path) -> Subject:
    slim = read_slim(smollm2_path)
    return Subject("m", slim.header, (slim.part("m.gguf"),), "5" * 64)


class Tuned:
    """A machine on which something was tuned."""

    def __init__(self, paths: Paths, subject: Subject, free: int) -> None:
        self.paths, self.subject, self.looked = paths, subject, survey(free)
        self.lessons = Lessons(paths.learned)

    async def plan(
        self, request: PlanRequest = REQUEST, *, tuned: bool = True, ask: bool = True,
        looked: Survey | None = None,
    ) -> Plan:  # fmt: skip
        return await plan_subject(
            self.subject, looked=looked or self.looked, request=request, paths=self.paths,
            lessons=self.lessons, tuned=tuned, ask_engine=ask,
        )  # fmt: skip

    async def keep(self, **settings: object) -> None:
        """As if `bench tune` had found these settings for the plan that would be made."""
        plan = await self.plan(tuned=False)
        own = of_plan(plan)
        values = {
            "at": 1_796_000_000.0, "goal": "throughput", "threads": own.threads, "threads_batch": None,
            "n_batch": own.n_batch, "n_ubatch": own.n_ubatch, "flash_attn": own.flash_attn,
            "prefill": 1.12, "decode": 1.03, "many": 1.05, "load": 0.1,
        }  # fmt: skip
        key = tuned_file.key_of("5" * 64, self.looked.build(), plan)
        assert tuned_file.keep(self.paths.tuned, key, Entry.model_validate(values | settings))


@pytest.fixture
def machine(paths: Paths, subject: Subject, monkeypatch: pytest.MonkeyPatch) -> Tuned:
    """A GPU with plenty of room, whose engine says what the formulas say."""
    paths.make()
    Asked(monkeypatch, computed)
    return Tuned(paths, subject, 7 * GIB)


def line(plan: Plan) -> str:
    return next((reason.text for reason in plan.reasons if reason.code == "tuned"), "")


async def test_tuned_settings_stand_in_the_plan_its_flags_and_its_reasons(machine: Tuned) -> None:
    await machine.keep(threads=6, threads_batch=16, n_ubatch=1_024)
    plan = await machine.plan()
    assert (plan.threads, plan.threads_batch, plan.n_ubatch) == (6, 16, 1_024)
    flags = dict(zip(plan.flags[::2], plan.flags[1::2], strict=False))
    assert (flags["-t"], flags["-tb"], flags["-ub"]) == ("6", "16", "1024")
    assert "tuned here on" in line(plan)
    assert "prefill x1.12, decode x1.03, all slots x1.05" in line(plan)
    assert plan.measured


async def test_its_bytes_are_those_of_the_tuned_settings(machine: Tuned) -> None:
    plain = await machine.plan(tuned=False)
    await machine.keep(n_ubatch=256)
    tuned = await machine.plan()
    asked = await machine.plan(PlanRequest(ctx=2_048, parallel=2, n_ubatch=256), tuned=False)
    assert tuned.devices[0].compute == asked.devices[0].compute < plain.devices[0].compute
    assert tuned.devices[0].computed_compute == asked.devices[0].computed_compute
    for place in (*tuned.devices, tuned.host):
        assert place.free is not None
        assert place.spare == place.free - place.reserve - place.needed


async def test_what_the_user_asked_for_is_kept(machine: Tuned) -> None:
    await machine.keep(threads=6, n_ubatch=1_024)
    plan = await machine.plan(PlanRequest(ctx=2_048, parallel=2, n_ubatch=256))
    assert (plan.n_ubatch, plan.threads) == (256, 6)
    assert "tokens at once" not in line(plan)


async def test_where_nothing_was_tuned_the_plan_says_nothing_of_it(machine: Tuned) -> None:
    assert line(await machine.plan()) == ""


async def test_where_the_plan_was_the_best_it_says_so(machine: Tuned) -> None:
    await machine.keep()
    plan = await machine.plan()
    assert "nothing is faster" in line(plan)
    assert plan.flags == (await machine.plan(tuned=False)).flags


async def test_another_kind_of_plan_is_not_touched(machine: Tuned) -> None:
    await machine.keep(n_ubatch=1_024)
    plan = await machine.plan(PlanRequest(ctx=2_048, parallel=2, gpu_layers=0))
    assert line(plan) == ""


async def test_settings_that_no_longer_fit_are_left_out_and_told(
    machine: Tuned, monkeypatch: pytest.MonkeyPatch
) -> None:
    await machine.keep(n_ubatch=1_024)

    def says(plan: Plan) -> Mapping[str, MeasuredRow]:
        return computed(plan, 7 * GIB if plan.n_ubatch == 1_024 else 0)

    Asked(monkeypatch, says)
    plan = await machine.plan()
    assert plan.fits
    assert plan.n_ubatch != 1_024
    assert "does not fit now" in line(plan)


async def test_a_limit_after_memory_ran_out_holds_for_tuned_settings_too(machine: Tuned) -> None:
    await machine.keep(n_ubatch=2_048)
    free = await machine.plan()
    small = await machine.plan(PlanRequest(ctx=2_048, parallel=2, n_ubatch=512), tuned=False)
    limit = small.devices[0].needed + MIB
    assert free.devices[0].needed > limit
    plan = await machine.plan(PlanRequest(ctx=2_048, parallel=2, limits={"CUDA0": limit}))
    assert plan.devices[0].needed <= limit


async def test_tuned_settings_that_ran_out_of_memory_are_not_tried_again(
    machine: Tuned, monkeypatch: pytest.MonkeyPatch
) -> None:
    await machine.keep(flash_attn="off")
    Asked(monkeypatch, lambda plan: computed(plan, 2 * GIB if plan.flash_attn == "off" else 0))
    tuned = await machine.plan()
    assert tuned.flash_attn == "off"
    machine.lessons.note_ran_out("5" * 64, machine.looked.build().build, tuned, "CUDA0", path="/x")
    plan = await machine.plan()
    assert plan.flags == (await machine.plan(tuned=False)).flags
    assert plan.flash_attn == "auto"


async def test_without_flash_attention_only_the_engine_knows_what_is_taken(
    machine: Tuned, monkeypatch: pytest.MonkeyPatch
) -> None:
    await machine.keep(flash_attn="off")
    plan = await machine.plan()
    assert plan.flash_attn == "off"
    assert plan.devices[0].computed_compute is None  # so that a load teaches nothing about the formula
    machine.paths.learned.unlink()
    by_formula = await machine.plan(ask=False)
    assert by_formula.flash_attn == "auto"
    Asked(monkeypatch, lambda plan: computed(plan) if plan.flash_attn == "auto" else None)
    assert (await machine.plan()).flash_attn == "auto"


async def test_smaller_ones_need_no_engine_to_be_asked(machine: Tuned) -> None:
    await machine.keep(n_ubatch=256)
    machine.paths.learned.unlink()
    plan = await machine.plan(ask=False)
    assert plan.n_ubatch == 256
    assert plan.fits


@pytest.mark.parametrize(
    ("performance", "threads", "said"),
    [(6, 6, "performance cores"), (None, 8, "which of them are fast is not told")],
)
async def test_threads_are_the_fast_cores_where_those_are_known(
    machine: Tuned, performance: int | None, threads: int, said: str
) -> None:
    hardware = replace(machine.looked.machine, cores_performance=performance)
    looked = replace(machine.looked, machine=hardware)
    plan = await machine.plan(PlanRequest(ctx=2_048, parallel=2, gpu_layers=0), looked=looked)
    assert plan.threads == threads
    assert plan.flags[plan.flags.index("-t") + 1] == str(threads)
    assert any(reason.code == "threads" and said in reason.text for reason in plan.reasons)


async def test_a_broken_file_changes_no_plan(machine: Tuned) -> None:
    machine.paths.tuned.write_text('{"v": 1, "tuned": [')
    assert (await machine.plan()).flags == (await machine.plan(tuned=False)).flags
