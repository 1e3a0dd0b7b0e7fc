"""The plan for a described machine: by formula, from the header alone; nothing of this machine counts.

It imports neither store, catalog nor engines, so that the plan of a file takes a moment.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from appliance.operations.plans.described import Described
from appliance.operations.plans.question import Question, path_of
from appliance.operations.plans.subject import Subject, of_file
from appliance.operations.plans.wishes import request_for, split_note
from appliance.planning import Plan, PlanRequest, Reason, make_plan
from appliance.planning.whatif import what_if
from appliance.settings import Settings


def of_a_file(settings: Settings, question: Question) -> dict[str, Any] | None:
    """The document, when a header and a description are all that it takes; else None.

    Blocks. Raises UsageError and GgufError.
    """
    machine, file = question.machine, path_of(question)
    if machine is None or file is None:
        return None
    return document_of(settings, of_file(file), question, machine)


def document_of(
    settings: Settings, subject: Subject, question: Question, machine: Described
) -> dict[str, Any]:
    """The plan's document. Blocks. Raises UsageError and GgufError."""
    request = request_for(settings, question.wishes, subject.mode)
    plan = _plan(subject, machine, request)
    found: dict[str, Any] = {**plan.to_json(), "machine": machine.to_json()}
    if found["speed"] is not None:
        found["speed"]["seen"] = None
    if question.what_if:
        rows = what_if(
            subject.header, machine.devices, machine.host, request, engine_build=None,
            parallel=plan.parallel, mmproj=subject.mmproj, draft=subject.draft, adapters=subject.adapters,
        )  # fmt: skip
        found["what_if"] = [row.to_json() for row in rows]
    return found


def _plan(subject: Subject, machine: Described, request: PlanRequest) -> Plan:
    plan = make_plan(
        subject.header, machine.devices, machine.host, request,
        model=subject.label, engine_build=None, mmproj=subject.mmproj, draft=subject.draft,
        adapters=subject.adapters,
    )  # fmt: skip
    notes = split_note(request, plan)
    if machine.host.available is None:
        text = "RAM was not described, so it is taken to be enough (`--ram SIZE`)"
        notes = (*notes, Reason("ram_unknown", text))
    return replace(plan, reasons=(*plan.reasons, *notes)) if notes else plan
