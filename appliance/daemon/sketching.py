"""Plans by formula alone, for questions about what would fit; no engine is asked."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from appliance.catalog import ModelRef
from appliance.errors import ApplianceError
from appliance.operations.lessons.learning import Lessons
from appliance.operations.machine.survey import Survey
from appliance.operations.models import Library
from appliance.operations.plans.plan import Wishes, plan_subject, request_for
from appliance.operations.plans.subject import Subject
from appliance.operations.special.loading import for_load
from appliance.planning import Plan

log = logging.getLogger("appliance.serving")


async def subject_for(library: Library, ref: ModelRef, wishes: Wishes) -> Subject:
    """What is planned for a model that is here. Raises ModelMissing, NotVerified, GgufError."""
    stored = await library.require(ref)
    return (await for_load(library, ref, stored, wishes.draft))[0]


async def sketch(
    library: Library,
    lessons: Lessons,
    subject: Subject,
    wishes: Wishes,
    looked: Survey,
    limits: Mapping[str, int],
) -> Plan:
    """The plan on this machine within these limits. Raises what planning ends with."""
    request = request_for(library.settings, wishes, subject.mode)
    return await plan_subject(
        subject,
        looked=looked,
        request=replace(request, limits=limits),
        paths=library.paths,
        lessons=lessons,
        ask_engine=False,
    )


async def what_if(
    library: Library,
    lessons: Lessons,
    ref: ModelRef,
    wishes: Wishes,
    looked: Survey,
    free: Mapping[str, int],
) -> Plan | None:
    """The plan with so many bytes free on each device. None when it can't be made."""
    devices = tuple(
        replace(one, free=free.get(one.name, one.free), ours=0, held=()) for one in looked.build().devices
    )
    choice = replace(looked.choice, build=replace(looked.build(), devices=devices)) if looked.choice else None
    looked = replace(looked, machine=replace(looked.machine, gpus=()), choice=choice)
    try:
        subject = await subject_for(library, ref, wishes)
        return await sketch(library, lessons, subject, wishes, looked, {})
    except ApplianceError as error:
        log.warning("no plan for what is free now: %s", error.message)
        return None
