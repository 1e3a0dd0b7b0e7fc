"""A family's name: its members judged for a machine and the goals, and the one that the name means."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from appliance.catalog import FileSource, Model, ModelRef, WheelSource
from appliance.errors import ApplianceError
from appliance.operations.catalog import resolving
from appliance.operations.lessons.learning import Lessons
from appliance.operations.machine.survey import Survey, glance
from appliance.operations.models import Library
from appliance.operations.plans.described import Described
from appliance.operations.plans.header_cache import HeaderCache
from appliance.operations.plans.headers import Subject, subject_of
from appliance.operations.plans.plan import Wishes, plan_subject, request_for
from appliance.operations.use import Mode
from appliance.planning import DeviceMemory, HostMemory, Plan, make_plan, rough_fit
from appliance.planning.ranking import (
    Kind,
    Ranked,
    Rated,
    active_params,
    base_ctx_of,
    bits_of,
    rank,
    rough_speed,
    where_of,
)

_AT_ONCE = 4
_PLAUSIBLE_BITS = (1.4, 33.0)


@dataclass(frozen=True, slots=True)
class Ground:
    """What a family is judged on: this machine, or a described one."""

    devices: tuple[DeviceMemory, ...]
    host: HostMemory
    looked: Survey | None
    """None: described, and no engine of this machine counts."""

    @classmethod
    def here(cls, looked: Survey) -> Ground:
        """Raises EngineError when no engine can be used here."""
        asked = looked.error is not None or looked.choice is not None
        return cls(looked.devices() if asked else (), looked.host(), looked)

    @classmethod
    def of(cls, described: Described) -> Ground:
        return cls(described.devices, described.host, None)


@dataclass(frozen=True, slots=True)
class Member:
    """One variant with all that is known of it here."""

    ref: ModelRef
    rated: Rated
    text: str
    """Where it fits, in words."""
    installed: bool
    subject: Subject | None = None
    plan: Plan | None = None
    """By formula; None: its header is not known here."""
    problem: str | None = None
    """Why its header could not be had, where it was asked for."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """A family, the best member first."""

    family: str
    rows: tuple[tuple[Ranked, Member], ...]
    decode_goal: float

    @property
    def best(self) -> Member | None:
        """The first that fits, of a licence that allows it; None: there is none."""
        return next((m for r, m in self.rows if _may_be_meant(r)), None)

    @property
    def meant(self) -> ModelRef:
        """What the family's name means to `up` and `models pull`: the best member of those that are here and
        fit, else the best one, else the smallest."""
        fitting = [member for row, member in self.rows if _may_be_meant(row)]
        found = next((member for member in fitting if member.installed), None) or next(iter(fitting), None)
        if found is not None:
            return found.ref
        free = [member.ref for _, member in self.rows if not member.ref.model.restricted]
        return min(free or [member.ref for _, member in self.rows], key=lambda ref: ref.variant.size)

    def to_json(self) -> list[dict[str, Any]]:
        return [_row(ranked, member) for ranked, member in self.rows]


async def ranking(
    library: Library,
    name: str,
    ground: Ground,
    wishes: Wishes,
    *,
    fetch_headers: bool = False,
    env: Mapping[str, str] | None = None,
) -> Ranking | None:
    """The members of the family of this name, best first; None for any other name.

    Headers that are here are planned by formula; with `fetch_headers` those of the others are asked for. The
    rest is judged by size. Raises EngineError where the ground needs an engine and has none.
    """
    refs = library.catalog.family(name, library.settings.aliases)
    if not refs:
        return None
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(ref: ModelRef) -> Member:
        async with gate:
            return await _member(library, ref, ground, wishes, fetch_headers, env)

    members = await asyncio.gather(*(one(ref) for ref in refs))
    goal = library.settings.goals.decode
    profile = wishes.profile or library.settings.engine.profile
    trained = max((ref.model.context or 0 for ref in refs), default=0) or None
    base = min(wishes.ctx, base_ctx_of(profile)) if wishes.ctx else base_ctx_of(profile, trained)
    by_ref = {member.rated.ref: member for member in members}
    ranked = rank([member.rated for member in members], decode_goal=goal, base_ctx=base)
    return Ranking(refs[0].model.family, tuple((row, by_ref[row.row.ref]) for row in ranked), goal)


def is_family(library: Library, name: str) -> bool:
    """Whether the name is one of a family, and no model's and no alias of one."""
    return bool(library.catalog.family(name, library.settings.aliases))


async def resolve(library: Library, name: str, *, env: Mapping[str, str] | None = None) -> ModelRef:
    """What a name means, for what fetches or serves it; a quant that no catalog lists is pinned.

    A family means its best member for this machine and the goals, those that are here first. Raises as
    `catalog.resolve` does.
    """
    if await asyncio.to_thread(is_family, library, name):
        looked = await glance(library.settings, library.paths)
        if looked.error is None:
            found = await ranking(library, name, Ground.here(looked), Wishes(), env=env)
            if found is not None:
                return found.meant
    return await resolving.resolve(library, name, env=env)


async def _member(
    library: Library,
    ref: ModelRef,
    ground: Ground,
    wishes: Wishes,
    fetch: bool,
    env: Mapping[str, str] | None,
) -> Member:
    installed = await asyncio.to_thread(library.store.find, ref.ref) is not None
    subject, problem = None, None
    known = installed or await asyncio.to_thread(_is_at_hand, library, ref)
    if known or (fetch and not isinstance(ref.variant.source, WheelSource)):
        try:
            subject = await subject_of(library, ref.ref, env=env)
        except (ApplianceError, OSError) as error:
            problem = error.message if isinstance(error, ApplianceError) else str(error)
    if subject is not None:
        try:
            plan = await _planned(library, subject, ground, wishes)
        except ApplianceError as error:
            problem = error.message
        else:
            return Member(ref, _rated(ref, plan), "", installed, subject, plan)
    return await asyncio.to_thread(_roughly, library, ref, ground, wishes, installed, problem)


def _is_at_hand(library: Library, ref: ModelRef) -> bool:
    """Whether looking at all its headers needs no network."""
    if isinstance(ref.variant.source, FileSource):
        return True
    cache = HeaderCache(library.paths)
    return all(cache.get(file.sha256, proven=False) is not None for file in ref.variant.files)


async def _planned(library: Library, subject: Subject, ground: Ground, wishes: Wishes) -> Plan:
    """By formula: many members are looked at, and an engine takes half a second for each."""
    request = request_for(library.settings, wishes, subject.mode)
    if ground.looked is not None and ground.looked.choice is not None:
        return await plan_subject(
            subject, looked=ground.looked, request=request, paths=library.paths,
            lessons=Lessons(library.paths.learned), ask_engine=False,
        )  # fmt: skip
    return await asyncio.to_thread(
        make_plan, subject.header, ground.devices, ground.host, request, model=subject.label,
        engine_build=None, mmproj=subject.mmproj, draft=subject.draft, adapters=subject.adapters,
    )  # fmt: skip


def _rated(ref: ModelRef, plan: Plan) -> Rated:
    decode = plan.speed.decode if plan.speed is not None else None
    return _rating(ref, where_of(plan), plan.ctx, decode)


def _roughly(
    library: Library, ref: ModelRef, ground: Ground, wishes: Wishes, installed: bool, problem: str | None
) -> Member:
    request = request_for(library.settings, wishes, Mode(embedding="embedding" in ref.model.use))
    fit = rough_fit(ref.variant.size, ref.model.context, ground.devices, ground.host, request)
    params, active = ref.model.params, _active(ref.model)
    share = active / params if active and params else 1.0
    decode = rough_speed(fit, _model_bytes(ref), share, ground.devices, ground.host, request)
    if _kind(ref.model) in ("embedding", "rerank"):
        decode = None
    return Member(ref, _rating(ref, fit.where, None, decode), fit.text, installed, problem=problem)


def _rating(ref: ModelRef, where: Any, ctx: int | None, decode: float | None) -> Rated:
    n_bytes, params = _model_bytes(ref), ref.model.params
    bits = n_bytes * 8 / params if params else None
    if bits is None or not _PLAUSIBLE_BITS[0] <= bits <= _PLAUSIBLE_BITS[1]:
        bits = bits_of(ref.quant)
    return Rated(
        ref.ref, _kind(ref.model), n_bytes, params, bits, ref.model.restricted, where, ctx, decode,
        _active(ref.model),
    )  # fmt: skip


def _active(model: Model) -> float | None:
    return active_params(f"{model.id} : {model.notes or ''}", model.params)


def _model_bytes(ref: ModelRef) -> int:
    return sum(file.size for file in ref.variant.files if file.role == "model")


def _kind(model: Model) -> Kind:
    if "embedding" in model.use:
        return "embedding"
    if "rerank" in model.use:
        return "rerank"
    return "chat" if "chat" in model.use else "other"


def _may_be_meant(ranked: Ranked) -> bool:
    return ranked.standing not in ("no", "unknown") and not ranked.row.restricted


def _row(ranked: Ranked, member: Member) -> dict[str, Any]:
    """One row of the document; speeds are estimates, what is null is unknown."""
    row, plan, model = ranked.row, member.plan, member.ref.model
    return {
        "ref": row.ref,
        "name": model.name,
        "size": member.ref.variant.size,
        "params": row.params,
        "bits": None if row.bits is None else round(row.bits, 2),
        "use": list(model.use),
        "restricted": row.restricted,
        "license_note": model.license_note,
        "here": member.installed,
        "standing": ranked.standing,
        "reason": ranked.reason,
        "where": row.where,
        "estimated": plan is None,
        "text": member.text or None,
        "problem": member.problem,
        "gpu_layers": plan and plan.gpu_layers,
        "n_layer": plan and plan.n_layer,
        "cpu_moe": plan and plan.cpu_moe,
        "ctx": plan and plan.ctx,
        "parallel": plan and plan.parallel,
        "kv_type": plan and plan.kv_type,
        "decode": row.decode,
        "decode_full": plan.speed.decode_full if plan is not None and plan.speed is not None else None,
    }
