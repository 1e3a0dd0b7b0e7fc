"""What `appliance plan` and `POST /api/plan` answer: one document, the same with and without a daemon.

The plan's own document (DESIGN's keys) and further:

- `speed.seen`: {"cold", "hot", "battery"}: tokens/s that this model reached here, or null
- `start`: how long a load would take now: `seconds`, `how` (`seen`, `computed`, `rough`), `text`; or null
- `machine`: "here", or what was described
- `what_if`: rows of context and KV type, when asked for
- `family`, `ranking`: of a family's name; the plan is then the one of the best member that has a header here
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from appliance.errors import UsageError
from appliance.operations.machine.survey import Survey, survey
from appliance.operations.models import Library
from appliance.operations.plans import described_plan, family, here_plan
from appliance.operations.plans.family import Ground, Ranking
from appliance.operations.plans.headers import NoHeader, subject_of
from appliance.operations.plans.question import Question, question_of
from appliance.operations.plans.subject import Subject
from appliance.operations.plans.wishes import request_for
from appliance.operations.special.loading import for_plan
from appliance.operations.start_estimate import estimate_for
from appliance.planning import rough_fit

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
        subject = await for_plan(library, subject, question.wishes.draft, env=env)
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
    question, settings = machine.question, library.settings
    if question.machine is not None:
        return await asyncio.to_thread(
            described_plan.document_of, settings, subject, question, question.machine
        )
    assert machine.looked is not None
    found = await here_plan.document_of(settings, library.paths, subject, question, machine.looked)
    start = await estimate_for(library, subject.ref) if subject.here and subject.ref is not None else None
    return {**found, "start": None if start is None else {**asdict(start), "text": start.text}}


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
        "tensor_split": [], "adapters": [], "devices": [], "reasons": [], "flags": [], "given_up": [],
        "fits": False, "measured": False, "machine": machine.to_json(),
    }  # fmt: skip
