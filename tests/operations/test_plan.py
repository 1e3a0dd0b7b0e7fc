"""From wishes and settings to the planner's request, and to a plan that the engine measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.engines import Build, Choice
from appliance.engines.refusals import Refused
from appliance.errors import DoesNotFit
from appliance.gguf import StubPart, read_header, read_slim
from appliance.hardware import Machine
from appliance.operations.lessons.learning import Lessons
from appliance.operations.machine.survey import Survey
from appliance.operations.plans import asking
from appliance.operations.plans.headers import Subject
from appliance.operations.plans.plan import Wishes, plan_subject, request_for, require_fit
from appliance.paths import Paths
from appliance.planning import (
    DeviceMemory,
    HostMemory,
    Learned,
    MeasuredRow,
    Plan,
    PlanRequest,
    make_plan,
)
from appliance.settings import Engine, Settings
from appliance.units import GIB, MIB
from tests.engines.launches import build as real_build
from tests.engines.launches import without_devices

ROOM = 512 * MIB + 350 * MIB
"""The reserve, and what the driver of a CUDA device takes."""
Says = Callable[[Plan], Mapping[str, MeasuredRow] | None]


def survey(free: int, kind: str = "llama-server") -> Survey:
    device = DeviceMemory("CUDA0", "Some GPU", "cuda", 8 * GIB, free)
    build = Build(kind, "/x", "b10434", "llama-server b10434", (device,), True)  # type: ignore[arg-type]
    machine = Machine(
        gpus=(), ram_total=32 * GIB, ram_available=24 * GIB, cores_physical=8, cores_logical=16,
        battery=None, cpu_name=None, notes=(),
    )  # fmt: skip
    return Survey(machine, (build,), Choice(build, "the only one"), None)


@pytest.fixture
def subject(smollm2_path: Path) -> Subject:
    slim = read_slim(smollm2_path)
    return Subject("m", slim.header, (slim.part("m.gguf"),), "5" * 64)


class Asked:
    """An engine that says what it is told to, since no real one differs from the formulas at will."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, says: Says) -> None:
        self.plans: list[Plan] = []
        self._says = says
        monkeypatch.setattr(asking, "measure", self.measure)

    async def measure(
        self, build: Build, parts: Sequence[StubPart], plan: Plan, **how: object
    ) -> Mapping[str, MeasuredRow] | None:
        self.plans.append(plan)
        return self._says(plan)

    @property
    def layers(self) -> list[int]:
        return [plan.gpu_layers for plan in self.plans]


def computed(plan: Plan, more: int = 0, *, factor: float = 1.0) -> Mapping[str, MeasuredRow]:
    """Just what the formulas say, the compute buffers of the device `factor` and `more` bytes larger."""
    rows = {"Host": MeasuredRow(plan.host.model, plan.host.kv, plan.host.compute - plan.host.beside.compute)}
    for device in plan.devices:
        compute = round((device.computed_compute or 0) * factor) + more
        rows[device.name] = MeasuredRow(device.model, device.kv, compute)
    return rows


def test_a_wish_wins_over_the_setting_and_the_setting_over_auto() -> None:
    settings = Settings(engine=Engine(ctx=4096, parallel="auto"))
    request = request_for(settings, Wishes(ctx=2048))
    assert (request.ctx, request.parallel, request.gpu_layers) == (2048, None, None)
    assert request_for(settings, Wishes()).ctx == 4096
    assert request_for(settings, Wishes()).reserve == 512 * MIB


class TestTheEngineIsAsked:
    async def test_once_when_it_says_what_was_computed(
        self, monkeypatch: pytest.MonkeyPatch, subject: Subject, paths: Paths
    ) -> None:
        asked = Asked(monkeypatch, computed)
        lessons = Lessons(paths.learned)
        looked = survey(6 * GIB)
        request = request_for(Settings(), Wishes())
        plan = await plan_subject(subject, looked=looked, request=request, paths=paths, lessons=lessons)
        assert (plan.fits, plan.measured, plan.gpu_layers) == (True, True, 31)
        assert {place.how for place in (*plan.devices, plan.host)} == {"measured"}
        assert len(asked.plans) == 1
        assert lessons.measured(subject.sha256, looked.build().build, plan.flags) == computed(asked.plans[0])

    async def test_what_it_refuses_does_not_fit_and_is_told_in_its_words(
        self, monkeypatch: pytest.MonkeyPatch, subject: Subject, paths: Paths
    ) -> None:
        def says(plan: Plan) -> Mapping[str, MeasuredRow]:
            raise Refused("unknown model architecture: 'x'")

        asked, lessons = Asked(monkeypatch, says), Lessons(paths.learned)
        looked, request = survey(6 * GIB), request_for(Settings(), Wishes())
        plan = await plan_subject(subject, looked=looked, request=request, paths=paths, lessons=lessons)
        assert (plan.fits, plan.measured) == (False, False)
        told = [reason.text for reason in plan.reasons if reason.code == "refused"]
        assert told == ["llama-server b10434 refuses it: unknown model architecture: 'x'"]
        assert lessons.measured(subject.sha256, looked.build().build, asked.plans[0].flags) is None
        with pytest.raises(DoesNotFit, match="engine refuses") as caught:
            require_fit(plan)
        assert "unknown model architecture" in (caught.value.cause or "")
        assert "--ctx" not in (caught.value.hint or "")

    async def test_what_fits_is_kept_when_the_next_plan_is_refused(
        self, monkeypatch: pytest.MonkeyPatch, subject: Subject, paths: Paths
    ) -> None:
        def says(plan: Plan) -> Mapping[str, MeasuredRow]:
            if len(asked.plans) > 1:
                raise Refused("GGML_ASSERT(n) failed")
            return computed(plan, factor=0.25)

        asked = Asked(monkeypatch, says)
        plan = await self.planned(subject, survey(ROOM + 100 * MIB), paths)
        assert len(asked.plans) == 2
        assert (plan.fits, plan.measured, plan.gpu_layers) == (True, True, asked.layers[0])

    async def test_again_when_it_takes_more_until_that_fits(
        self, monkeypatch: pytest.MonkeyPatch, subject: Subject, paths: Paths
    ) -> None:
        """This one keeps weights in 40 MiB a layer, far more than they have: 10 fit into 400 MiB."""

        def says(plan: Plan) -> Mapping[str, MeasuredRow]:
            return {
                "CUDA0": MeasuredRow(40 * MIB * plan.gpu_layers, 0, 0),
                "Host": MeasuredRow(100 * MIB, 0, 10 * MIB),
            }

        asked = Asked(monkeypatch, says)
        plan = await self.planned(subject, survey(ROOM + 400 * MIB), paths)
        assert (plan.fits, plan.measured) == (True, True)
        assert asked.layers[0] == 31
        assert plan.gpu_layers == max(n for n in asked.layers if n <= 10) >= 6
        assert 1 < len(asked.plans) <= asking.MAX_MEASUREMENTS
        assert any(f"planned {len(asked.plans)} times" in reason.text for reason in plan.reasons)

    async def test_a_larger_compute_buffer_is_the_next_plans_from_the_start(
        self, monkeypatch: pytest.MonkeyPatch, subject: Subject, paths: Paths
    ) -> None:
        asked = Asked(monkeypatch, lambda plan: computed(plan, factor=4.0))
        plan = await self.planned(subject, survey(ROOM + 130 * MIB), paths)
        assert (plan.fits, plan.measured) == (True, True)
        assert 0 < plan.gpu_layers < asked.layers[0]

    async def test_a_smaller_compute_buffer_makes_room_for_more_layers(
        self, monkeypatch: pytest.MonkeyPatch, subject: Subject, paths: Paths
    ) -> None:
        asked = Asked(monkeypatch, lambda plan: computed(plan, factor=0.25))
        plan = await self.planned(subject, survey(ROOM + 100 * MIB), paths)
        assert (plan.fits, plan.measured) == (True, True)
        assert plan.gpu_layers > asked.layers[0]

    async def test_what_did_not_fit_is_never_taken_for_what_did(
        self, monkeypatch: pytest.MonkeyPatch, subject: Subject, paths: Paths
    ) -> None:
        """The first plan leaves room for more, and more takes a GiB that nobody foresaw."""
        asked = Asked(
            monkeypatch, lambda plan: computed(plan, 0 if len(asked.plans) == 1 else GIB, factor=0.25)
        )
        plan = await self.planned(subject, survey(ROOM + 100 * MIB), paths)
        assert asked.layers[0] < asked.layers[1]
        assert len(asked.plans) == 2
        assert plan.fits
        assert plan.flags == asked.plans[0].flags

    async def test_an_explicit_number_of_layers_is_never_changed(
        self, monkeypatch: pytest.MonkeyPatch, subject: Subject, paths: Paths
    ) -> None:
        asked = Asked(monkeypatch, lambda plan: computed(plan, 7 * GIB))
        request = request_for(Settings(), Wishes(ctx=1024, parallel=1, gpu_layers=20))
        plan = await plan_subject(subject, looked=survey(2 * GIB), request=request, paths=paths)
        assert (plan.gpu_layers, plan.ctx, plan.parallel, plan.fits) == (20, 1024, 1, False)
        assert set(asked.layers) == {20}
        with pytest.raises(DoesNotFit) as caught:
            require_fit(plan)
        assert caught.value.exit_code == 5
        assert caught.value.hint

    async def test_without_figures_the_plan_is_computed_and_says_so(
        self, monkeypatch: pytest.MonkeyPatch, subject: Subject, paths: Paths
    ) -> None:
        Asked(monkeypatch, lambda _: None)
        plan = await self.planned(subject, survey(6 * GIB), paths)
        assert (plan.fits, plan.measured, plan.gpu_layers) == (True, False, 31)
        assert any(r.code == "not_measured" and "gave no figures" in r.text for r in plan.reasons)
        assert not paths.learned.exists()

    async def test_no_measurement_begins_after_the_time_is_over(
        self, monkeypatch: pytest.MonkeyPatch, subject: Subject, paths: Paths
    ) -> None:
        now = [0.0]

        def says(plan: Plan) -> Mapping[str, MeasuredRow]:
            now[0] += 1.5
            return computed(plan, factor=0.1 * 2 ** len(asked.plans))

        asked = Asked(monkeypatch, says)
        monkeypatch.setattr("appliance.operations.plans.asking.time.monotonic", lambda: now[0])
        plan = await self.planned(subject, survey(ROOM + 100 * MIB), paths)
        assert len(asked.plans) == 2
        assert plan.measured

    async def planned(self, subject: Subject, looked: Survey, paths: Paths) -> Plan:
        request = request_for(Settings(), Wishes(ctx=1024, parallel=1))
        return await plan_subject(subject, looked=looked, request=request, paths=paths)


class TestWhatItSaysCorrectsTheFormulas:
    @pytest.mark.parametrize("layers", [0, 12, 31])
    @pytest.mark.parametrize("factor", [0.5, 1.0, 1.7])
    def test_next_they_say_the_same(self, smollm2_path: Path, layers: int, factor: float) -> None:
        """A ratio of compute buffers on the device, and other ones that were learned before."""
        device = DeviceMemory("CUDA0", "Some GPU", "cuda", 8 * GIB, 8 * GIB)
        request = PlanRequest(ctx=2048, parallel=2, gpu_layers=layers)

        def make(learned: Mapping[str, Learned]) -> Plan:
            return make_plan(
                read_header(smollm2_path), (device,), HostMemory(32 * GIB, 24 * GIB, 8), request,
                model="m", engine_build="llama-server b10434", learned=learned,
            )  # fmt: skip

        before = {name: Learned(full=1.3, partial=0.8) for name in ("CUDA0", "Host")}
        plan = make(before)
        rows = dict(computed(plan, factor=factor))
        rows["Host"] = replace(rows["Host"], compute=round((plan.host.computed_compute or 0) * factor))
        learned, wish = asking.corrected(plan, rows, before, request)
        again = make(learned)
        assert wish == request
        assert again.flags == plan.flags
        for place in (*again.devices, again.host):
            in_no_table = place.beside.compute
            assert place.compute == pytest.approx(rows[place.name].compute + in_no_table, abs=2)

    def test_a_ratio_that_nobody_knows_follows_upwards_only(self, smollm2_path: Path) -> None:
        device = DeviceMemory("CUDA0", "Some GPU", "cuda", 8 * GIB, 8 * GIB)
        request = PlanRequest(ctx=2048, parallel=2, gpu_layers=31)
        plan = make_plan(
            read_header(smollm2_path), (device,), HostMemory(32 * GIB, 24 * GIB, 8), request,
            model="m", engine_build="llama-server b10434",
        )  # fmt: skip
        for factor, partial in ((2.0, 2.0), (0.5, 1.0)):
            learned, _ = asking.corrected(plan, computed(plan, factor=factor), {}, request)
            assert learned["CUDA0"].full == pytest.approx(factor, abs=0.01)
            assert learned["CUDA0"].partial == pytest.approx(partial, abs=0.01)


async def test_llama_cpp_python_gets_one_slot_and_the_plan_says_why(subject: Subject, paths: Paths) -> None:
    request = request_for(Settings(), Wishes(parallel=4))
    looked = survey(6 * GIB, "llama-cpp-python")
    plan = await plan_subject(subject, looked=looked, request=request, paths=paths)
    assert plan.parallel == 1
    assert any("one request at a time" in reason.text for reason in plan.reasons)
    assert any("can't be asked" in reason.text for reason in plan.reasons)


async def test_the_real_engine_measures_the_plan_of_a_real_model(subject: Subject, paths: Paths) -> None:
    """The header alone is here; the figures are the engine's, and no larger than what was planned with."""
    with without_devices():
        here = real_build("xllamacpp")
        looked = replace(survey(0), builds=(here,), choice=Choice(here, "the only one"))
        request = request_for(Settings(), Wishes(ctx=2048, parallel=2))
        plan = await plan_subject(replace(subject, here=False), looked=looked, request=request, paths=paths)
    assert (plan.fits, plan.measured, plan.host.how) == (True, True, "measured")
    assert plan.host.model // MIB == 92
    assert plan.host.kv == 90 * MIB
    assert any(reason.code == "header_unverified" for reason in plan.reasons)


class TestWhatRanOutBefore:
    """Plans of this machine begin below what ran out of memory in a load."""

    async def test_is_not_planned_again_and_the_engine_is_not_asked_twice_about_a_plan(
        self, monkeypatch: pytest.MonkeyPatch, subject: Subject, paths: Paths
    ) -> None:
        asked = Asked(monkeypatch, computed)
        lessons, looked = Lessons(paths.learned), survey(6 * GIB)
        request, build = request_for(Settings(), Wishes()), looked.build()

        async def planned() -> Plan:
            return await plan_subject(subject, looked=looked, request=request, paths=paths, lessons=lessons)

        found = [await planned()]
        for _ in range(2):
            lessons.note_ran_out(subject.sha256, build.build, found[-1], "CUDA0", path=build.path)
            found.append(await planned())
            assert found[-1].fits
            assert found[-1].devices[0].needed < found[-2].devices[0].needed
        assert [len([r for r in one.reasons if r.code == "ran_out_before"]) for one in found] == [0, 1, 2]
        before = len(asked.plans)
        assert (await planned()).flags == found[-1].flags
        assert len(asked.plans) == before + 1, "only the first plan is measured anew"
        lessons.forget_ran_out(subject.sha256)
        assert (await planned()).flags == found[0].flags

    async def test_what_was_asked_for_stays_and_the_plan_says_that_it_ran_out(
        self, monkeypatch: pytest.MonkeyPatch, subject: Subject, paths: Paths
    ) -> None:
        Asked(monkeypatch, computed)
        lessons, looked = Lessons(paths.learned), survey(6 * GIB)
        wishes = Wishes(ctx=4096, parallel=2, gpu_layers=31, kv="f16", ubatch=512)
        request, build = request_for(Settings(), wishes), looked.build()
        plan = await plan_subject(subject, looked=looked, request=request, paths=paths, lessons=lessons)
        lessons.note_ran_out(subject.sha256, build.build, plan, "CUDA0", path=build.path)
        again = await plan_subject(subject, looked=looked, request=request, paths=paths, lessons=lessons)
        assert (again.flags, again.given_up) == (plan.flags, ())
        (line,) = (reason.text for reason in again.reasons if reason.code == "ran_out_here")
        assert "ran out before" in line
        assert "--retry" in line
