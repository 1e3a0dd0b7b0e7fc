"""What `appliance plan` and `POST /api/plan` answer: one document, the same with and without a daemon.

The plan's own document (DESIGN's keys) and further:

- `speed.seen`: {"cold", "hot", "battery"}: tokens/s that this model reached here, or null
- `machine`: "here", or what was described
- `what_if`: rows of context and KV type, when asked for
- `family`, `ranking`: of a family's name; the plan is then the one of the best member that has a header here
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from appliance.errors import UsageError
from appliance.operations.lessons import speeds
from appliance.operations.lessons.learning import Lessons
from appliance.operations.machine.survey import Survey, survey
from appliance.operations.models import Library
from appliance.operations.plans import described_plan, family
from appliance.operations.plans.drafts import planned_with
from appliance.operations.plans.family import Ground, Ranking
from appliance.operations.plans.headers import NoHeader, subject_of
from appliance.operations.plans.plan import plan_subject
from appliance.operations.plans.question import Question, question_of
from appliance.operations.plans.subject import Subject
from appliance.operations.plans.wishes import request_for, split_note
from appliance.planning import Plan, rough_fit
from appliance.planning.whatif import WhatIf, what_if

_PLAN_KEYS = (
    "arch", "engine_build", "n_layer", "gpu_layers", "ctx", "parallel", "kv_type", "flash_attn", "n_batch",
    "n_ubatch", "cpu_moe", "split", "mmproj", "draft", "host", "speed",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Machine:
    """Where the plan is for; the survey only for this machine."""

    question: Question
    looked: Survey | None

    @property
    def ground(self) -> Ground:
        if self.question.machine is not None:
            return Ground.of(self.question.machine)
        assert self.looked is not None
        return Ground.here(self.looked)

    def to_json(self) -> Any:
        return "here" if self.question.machine is None else self.question.machine.to_json()


async def answer(
    library: Library, body: Mapping[str, Any], *, env: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The document. `body` comes from a person, so everything in it is checked.

    Raises UsageError for what makes no sense, and what looking for the model's header, surveying and planning
    raise: UnknownModel, ModelMissing, NotVerified, GgufError, HubError, DownloadError, EngineError.
    """
    question = question_of(body)
    of_file = await asyncio.to_thread(described_plan.of_a_file, library.settings, question)
    if of_file is not None:
        return of_file
    if library.catalog.family(question.model, library.settings.aliases):
        return await _of_family(library, question, env)
    looking = None
    if question.machine is None:
        looking = asyncio.ensure_future(survey(library.settings, question.wishes.engine, paths=library.paths))
    try:
        subject = await subject_of(library, question.model, env=env)
        subject = await planned_with(library, subject, question.wishes.draft, env=env)
        looked = None if looking is None else await looking
    except NoHeader as error:
        machine = _Machine(question, None if looking is None else await looking)
        raise _roughly(library, error, machine) from None
    except BaseException:
        if looking is not None:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
        raise
    return await _document(library, subject, _Machine(question, looked))


async def _document(library: Library, subject: Subject, machine: _Machine) -> dict[str, Any]:
    question, looked = machine.question, machine.looked
    if question.machine is not None:
        return await asyncio.to_thread(
            described_plan.document_of, library.settings, subject, question, question.machine
        )
    assert looked is not None
    request = request_for(library.settings, question.wishes, embedding=subject.embedding)
    plan = await plan_subject(
        subject,
        looked=looked,
        request=request,
        paths=library.paths,
        lessons=Lessons(library.paths.learned),
        ask_engine=question.ask,
    )
    plan = replace(plan, reasons=(*plan.reasons, *split_note(request, plan)))
    found: dict[str, Any] = {**plan.to_json(), "machine": "here"}
    seen = await asyncio.to_thread(speeds.seen, library.paths, subject.label, plan)
    if any(speed is not None for speed in seen.values()):
        blank = {"decode": None, "decode_full": None, "how": None}
        found["speed"] = {**(found["speed"] or blank), "seen": dict(seen)}
    if found["speed"] is not None:
        found["speed"].setdefault("seen", None)
    if question.what_if:
        rows = await _what_if(library, subject, machine, plan)
        found["what_if"] = [row.to_json() for row in rows]
    return found


async def _what_if(library: Library, subject: Subject, machine: _Machine, plan: Plan) -> tuple[WhatIf, ...]:
    ground, learned = machine.ground, None
    if plan.engine_build is not None:
        lessons = Lessons(library.paths.learned)
        learned = await asyncio.to_thread(lessons.of, subject.sha256, plan.engine_build)
    return await asyncio.to_thread(
        what_if,
        subject.header,
        ground.devices,
        ground.host,
        request_for(library.settings, machine.question.wishes, embedding=subject.embedding),
        engine_build=plan.engine_build,
        parallel=plan.parallel,
        mmproj=subject.mmproj,
        draft=subject.draft,
        learned=learned,
    )


def _roughly(library: Library, error: NoHeader, machine: _Machine) -> NoHeader:
    """The same error with what can be said without a header."""
    if machine.looked is not None and machine.looked.error is not None:
        return error
    ref, ground = error.ref, machine.ground
    request = request_for(library.settings, machine.question.wishes)
    fit = rough_fit(ref.variant.size, ref.model.context, ground.devices, ground.host, request)
    words = {"gpu": "on the GPU", "partly": "partly on the GPU", "cpu": "in RAM", "no": "not at all"}
    where = f"it would fit {words[fit.where]}" if fit.where else "whether it fits is not known"
    return NoHeader(ref, f"By its size: {where} ({fit.text}).")


async def _of_family(library: Library, question: Question, env: Mapping[str, str] | None) -> dict[str, Any]:
    if question.wishes.draft is not None:
        raise UsageError(
            "A draft model goes with one model, not with a family.",
            hint="Name the model: `appliance plan MODEL --draft ...`.",
        )
    looked = None
    if question.machine is None:
        looked = await survey(library.settings, question.wishes.engine, paths=library.paths)
    machine = _Machine(question, looked)
    found = await family.ranking(
        library, question.model, machine.ground, question.wishes,
        fetch_headers=question.fetch_headers, env=env,
    )  # fmt: skip
    assert found is not None
    best = found.best
    planned = next(
        (m for r, m in found.rows if m.subject is not None and r.standing not in ("no", "unknown")), None
    )
    if planned is not None and planned.subject is not None:
        document = await _document(library, planned.subject, machine)
    else:
        document = _no_plan(found, machine)
    refused = planned is best and any(reason["code"] == "refused" for reason in document["reasons"])
    document["fits"] = best is not None and not refused
    document["family"] = _family(found)
    document["ranking"] = found.to_json()
    return document


def _family(found: Ranking) -> dict[str, Any]:
    """What the family's name means."""
    return {
        "name": found.family,
        "best": found.best.rated.ref if found.best is not None else None,
        "served": found.meant.ref,
        "decode_goal": found.decode_goal,
        "without_header": sum(member.subject is None for _, member in found.rows),
    }


def _no_plan(found: Ranking, machine: _Machine) -> dict[str, Any]:
    """The document of a family of which no header is known here: what a plan would say is unknown."""
    return {
        "model": found.meant.ref,
        **dict.fromkeys(_PLAN_KEYS),
        "tensor_split": [], "devices": [], "reasons": [], "flags": [], "given_up": [],
        "fits": False, "measured": False, "machine": machine.to_json(),
    }  # fmt: skip
