"""A plan with other settings, in bytes: whether they fit, asked of the engine where it can be asked."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from appliance.engines import Build
from appliance.operations.lessons.learning import Lessons
from appliance.operations.plans import asking
from appliance.operations.plans.subject import Subject
from appliance.operations.tuning.knobs import Knobs, of_plan, same_memory, with_knobs
from appliance.paths import Paths
from appliance.planning import (
    DeviceMemory,
    HostMemory,
    MeasuredRow,
    Plan,
    PlanRequest,
    apply_measurement,
    make_plan,
    with_memory_of,
)

_ALIKE = ("gpu_layers", "ctx", "parallel", "kv_type", "cpu_moe", "split", "tensor_split", "mmproj", "draft")


@dataclass(frozen=True, slots=True)
class Ground:
    """What a plan was made of."""

    subject: Subject
    build: Build
    devices: Sequence[DeviceMemory]
    host: HostMemory
    request: PlanRequest
    paths: Paths
    lessons: Lessons
    ask_engine: bool = True
    """False: what the engine was asked before counts, and the formulas."""

    @property
    def least_ubatch(self) -> int:
        """Below it, pictures fail; 0: any will do."""
        return 0 if self.subject.mmproj is None else self.subject.mmproj.n_ubatch

    async def with_settings(self, plan: Plan, knobs: Knobs) -> Plan | None:
        """The plan with these settings. None when it does not fit then, or may not for all that is known."""
        own = of_plan(plan)
        found = with_knobs(plan, knobs)
        if not same_memory(knobs, own):
            resized = await self._resized(plan, knobs)
            if resized is None:
                return None
            found = resized
        sha256, build = self.subject.sha256, self.build
        before = await asyncio.to_thread(self.lessons.ran_out, sha256, build.build, found, path=build.path)
        return found if before is None else None

    async def _resized(self, plan: Plan, knobs: Knobs) -> Plan | None:
        pinned = replace(
            self.request, ctx=plan.ctx, parallel=plan.parallel, gpu_layers=plan.gpu_layers,
            kv_type=plan.kv_type, cpu_moe=plan.cpu_moe, n_ubatch=knobs.n_ubatch,
        )  # fmt: skip
        other = await asyncio.to_thread(self._make, pinned)
        if not _alike(other, plan):
            return None
        found = with_memory_of(with_knobs(plan, knobs), other)
        if knobs.flash_attn == "off":
            found = _without_formula(found)
        rows = await self._ask(found)
        if rows is None and knobs.flash_attn == "off":
            return None  # no formula knows what it takes
        found = apply_measurement(found, rows or {})
        places = {place.name: place.needed for place in (*found.devices, found.host)}
        within = all(places.get(name, 0) <= most for name, most in self.request.limits.items())
        return found if found.fits and within else None

    def _make(self, request: PlanRequest) -> Plan:
        subject, build = self.subject, self.build.build
        return make_plan(
            subject.header, self.devices, self.host, request, model=subject.label, engine_build=build,
            mmproj=subject.mmproj, draft=subject.draft, adapters=subject.adapters,
            learned=self.lessons.of(subject.sha256, build),
        )  # fmt: skip

    async def _ask(self, plan: Plan) -> Mapping[str, MeasuredRow] | None:
        """What the engine says of it, now or before."""
        key, build = self.subject.key, self.build.build
        known = await asyncio.to_thread(self.lessons.measured, key, build, plan.flags)
        if known is not None or not self.ask_engine:
            return known
        rows = await asking.once(self.build, self.subject, plan, self.paths)
        if rows is not None:
            await asyncio.to_thread(self.lessons.note_measured, key, build, plan.flags, rows)
        return rows


def _alike(other: Plan, plan: Plan) -> bool:
    """Whether only the micro-batch differs."""
    same = all(getattr(other, name) == getattr(plan, name) for name in _ALIKE)
    return same and [one.name for one in other.devices] == [one.name for one in plan.devices]


def _without_formula(plan: Plan) -> Plan:
    """The formulas are for flash attention: a load without it teaches nothing about them."""
    devices = tuple(replace(one, computed_compute=None) for one in plan.devices)
    return replace(plan, devices=devices, host=replace(plan.host, computed_compute=None))
