"""`bench tune` from a model's name to the document that it prints."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict, dataclass
from typing import Any

from appliance.catalog import ModelRef
from appliance.errors import ApplianceError, ModelMissing, UsageError
from appliance.gguf import shape_of
from appliance.hardware import Machine
from appliance.operations.lessons.learning import Lessons
from appliance.operations.machine.survey import survey
from appliance.operations.models import Library
from appliance.operations.plans.engine_limits import within
from appliance.operations.plans.headers import of_stored
from appliance.operations.plans.plan import plan_subject, request_for, require_fit
from appliance.operations.plans.wishes import Wishes
from appliance.operations.tuning import tuned_file
from appliance.operations.tuning.candidates import Candidate
from appliance.operations.tuning.fitting import Ground
from appliance.operations.tuning.knobs import of_plan, words
from appliance.operations.tuning.measuring import Bench
from appliance.operations.tuning.tuning import OVERLOADED_SHARE, Outcome, busy, to_try

_NO_CHAT = frozenset({"embedding", "rerank"})


@dataclass(frozen=True, slots=True)
class Prepared:
    """A model that can be measured, and what would be tried."""

    ref: ModelRef
    sha256: str
    ground: Ground
    bench: Bench
    machine: Machine
    tried: tuple[Candidate, ...]

    def document(self) -> dict[str, Any]:
        """What would be tried: `--dry-run --json`."""
        return {
            "model": self.ref.ref,
            "engine": self.bench.build.build,
            "slots": self.bench.plan.parallel,
            "tried": [_candidate(one, self) for one in self.tried],
        }


async def prepare(library: Library, name: str | None, wishes: Wishes) -> Prepared:
    """Look at the machine and plan, untuned. Nothing is started on the model's weights.

    Raises UnknownModel, ModelMissing, NotVerified, GgufError, EngineError, DoesNotFit, and UsageError for
    what can't be tuned.
    """
    ref = await asyncio.to_thread(_ref, library, name)
    if set(ref.model.use) and set(ref.model.use) <= _NO_CHAT:
        raise UsageError(
            f"{ref.ref} generates no text, so there is nothing to tune.",
            cause="Prompts and tokens of text are what is measured.",
        )
    stored = await library.require(ref)
    looked = await survey(library.settings, wishes.engine, wake=True, paths=library.paths)
    build = looked.build()
    if build.kind == "llama-cpp-python":
        raise UsageError(
            "llama-cpp-python's server tells no speeds, so it can't be tuned.",
            hint="Use another engine: --engine xllamacpp or llama-server.",
        )
    subject = await asyncio.to_thread(of_stored, library, stored, ref.model)
    request = request_for(library.settings, wishes, subject.mode)
    lessons, devices, host = Lessons(library.paths.learned), looked.devices(), looked.host()
    plan = require_fit(
        await plan_subject(
            subject, looked=looked, request=request, paths=library.paths, lessons=lessons, tuned=False
        )
    )
    subject, request, _ = within(build, devices, subject, request)
    ground = Ground(subject, build, devices, host, request, library.paths, lessons)

    async def prove() -> None:
        await library.require(ref)

    bench = Bench(build, plan, ref.ref, stored.main, shape_of(subject.header).n_vocab, library.paths, prove)
    tried = await to_try(ground, bench, looked.machine)
    return Prepared(ref, ref.variant.main.sha256, ground, bench, looked.machine, tried)


def require_quiet(machine: Machine, load: float | None) -> None:
    """Raises ApplianceError on a machine that other programs keep busy: any figure would be chance."""
    if busy(load, machine, OVERLOADED_SHARE):
        raise ApplianceError(
            "The machine is too busy to be measured.",
            cause=f"Its load is {load:.1f}, and it has {machine.cores_logical} cores.",
            hint="Wait until other programs are done, or measure all the same: --anyway.",
        )


def keep(prepared: Prepared, outcome: Outcome) -> bool:
    """Note what was found for later plans. False: the disk did not take it."""
    bench = prepared.bench
    key = tuned_file.key_of(prepared.sha256, bench.build, bench.plan)
    return tuned_file.keep(prepared.ground.paths.tuned, key, outcome.entry(time.time()))


def document(prepared: Prepared, outcome: Outcome, *, kept: bool) -> dict[str, Any]:
    """What `bench tune --json` prints. Speeds are tokens per second, ratios over the engine's defaults."""
    verdict, pause = outcome.verdict, outcome.pause
    rows = []
    for one in outcome.tried:
        speeds, ratio = outcome.speeds.get(one.name), verdict.ratios.get(one.name)
        rows.append(
            _candidate(one, prepared)
            | {
                "speeds": None if speeds is None else asdict(speeds),
                "ratios": None if ratio is None else asdict(ratio),
                "failed": outcome.failed.get(one.name),
            }
        )
    return {
        "model": prepared.ref.ref,
        "engine": prepared.bench.build.build,
        "slots": prepared.bench.plan.parallel,
        "goal": outcome.goal,
        "work": asdict(outcome.work),
        "rows": rows,
        "noise": verdict.noise,
        "best": outcome.kept.name,
        "why": verdict.why,
        "kept": kept,
        "pause": None if pause is None else asdict(pause),
        "load": outcome.load,
        "notes": notes(prepared, outcome),
    }


def notes(prepared: Prepared, outcome: Outcome) -> list[str]:
    """What makes the figures less than they seem."""
    found = []
    if busy(outcome.load, prepared.machine):
        found.append(f"The machine was busy (load {outcome.load:.1f}): measure again when it is quiet.")
    battery = prepared.machine.battery
    if battery is not None and battery.plugged is False:
        found.append("The machine runs on its battery: on mains power other settings may be the best.")
    return found


def _candidate(one: Candidate, prepared: Prepared) -> dict[str, Any]:
    own = of_plan(prepared.bench.plan)
    said = {"engine": "the engine's own defaults", "plan": "as planned"}.get(one.name)
    return {"name": one.name, "words": said or words(one.knobs, own), "knobs": asdict(one.knobs)}


def _ref(library: Library, name: str | None) -> ModelRef:
    found = library.default() if name is None else library.resolve(name)
    if found is None:
        raise ModelMissing(
            "No model was named, and none is here alone.", hint="`appliance models list --here` shows them."
        )
    return found
