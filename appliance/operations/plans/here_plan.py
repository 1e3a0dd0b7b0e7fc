"""The plan for this machine: measured by the engine that was found here, with what loads and replies showed.

Like the one for a described machine, it imports neither store nor catalog.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from appliance.operations.lessons import speeds
from appliance.operations.lessons.learning import Lessons
from appliance.operations.machine.survey import Survey
from appliance.operations.plans.plan import plan_subject
from appliance.operations.plans.question import Question
from appliance.operations.plans.subject import Subject
from appliance.operations.plans.wishes import request_for, split_note
from appliance.paths import Paths
from appliance.planning.whatif import what_if
from appliance.settings import Settings


async def document_of(
    settings: Settings, paths: Paths, subject: Subject, question: Question, looked: Survey
) -> dict[str, Any]:
    """The plan's document. Raises UsageError, GgufError and EngineError."""
    request = request_for(settings, question.wishes, subject.mode)
    lessons = Lessons(paths.learned)
    plan = await plan_subject(
        subject, looked=looked, request=request, paths=paths, lessons=lessons, ask_engine=question.ask
    )
    plan = replace(plan, reasons=(*plan.reasons, *split_note(request, plan)))
    found: dict[str, Any] = {**plan.to_json(), "machine": "here"}
    seen = await asyncio.to_thread(speeds.seen, paths, subject.label, plan)
    if any(speed is not None for speed in seen.values()):
        blank = {"decode": None, "decode_full": None, "how": None}
        found["speed"] = {**(found["speed"] or blank), "seen": dict(seen)}
    if found["speed"] is not None:
        found["speed"].setdefault("seen", None)
    if question.what_if:
        build = looked.build().build
        learned = await asyncio.to_thread(lessons.of, subject.sha256, build)
        rows = await asyncio.to_thread(
            what_if, subject.header, looked.devices(), looked.host(), request, engine_build=build,
            parallel=plan.parallel, mmproj=subject.mmproj, draft=subject.draft,
            adapters=subject.adapters, learned=learned,
        )  # fmt: skip
        found["what_if"] = [row.to_json() for row in rows]
    return found
