"""Puts the engine's own figures in the place of computed ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from appliance.planning.choice.estimate import ENGINE_PROCESS
from appliance.planning.result import MemoryPlan, Plan, Reason
from appliance.planning.values import HOST, MeasuredRow
from appliance.planning.words import accounts


def apply_measurement(plan: Plan, rows: Mapping[str, MeasuredRow]) -> Plan:
    """The plan with measured bytes, and `fits`, spare and reasons that follow from them.

    `rows` has device names; every other row (`Host`, `CPU_REPACK`, `AMX`) is RAM and is summed. A device
    without a row keeps its computed figures; `measured` is True only when all devices and the host have one.
    """
    if not rows:
        return plan
    names = {device.name for device in plan.devices}
    devices = tuple(_replace(d, rows.get(d.name)) for d in plan.devices)
    in_ram = [row for name, row in rows.items() if name not in names]
    shared = sum(d.needed for d in devices if d.name in plan.shared)
    host = replace(plan.host, overhead=ENGINE_PROCESS + shared)
    host = _replace(host, _sum(in_ram)) if in_ram else _balanced(host)
    measured = bool(in_ram) and all(d.name in rows for d in devices)
    return _told(plan, devices, host, measured=measured)


def with_memory_of(plan: Plan, other: Plan) -> Plan:
    """The plan with the computed bytes of another one that uses the same places."""
    return _told(plan, other.devices, other.host, measured=False)


def _told(plan: Plan, devices: tuple[MemoryPlan, ...], host: MemoryPlan, *, measured: bool) -> Plan:
    """The plan with these accounts, and whether it fits then."""
    fits = all(p.spare is None or p.spare >= 0 for p in (*devices, host))
    kept = [r for r in plan.reasons if r.code not in accounts.MEMORY_CODES and r.code not in _VERDICTS]
    reasons = [
        *kept,
        *(line for d in devices for line in accounts.memory_lines(d, host=False)),
        *accounts.memory_lines(host, host=True),
        *_verdict(plan, (*devices, host), fits),
    ]
    return replace(plan, devices=devices, host=host, fits=fits, measured=measured, reasons=tuple(reasons))


_VERDICTS = frozenset({"does_not_fit", "would_fit"})


def _replace(plan: MemoryPlan, row: MeasuredRow | None) -> MemoryPlan:
    if row is None:
        return plan
    beside = plan.beside
    return _balanced(
        replace(
            plan,
            model=row.model + beside.model,
            kv=row.context + beside.kv,
            compute=row.compute + beside.compute,
            how="measured",
        )
    )


def _balanced(plan: MemoryPlan) -> MemoryPlan:
    spare = None if plan.free is None else plan.free - plan.reserve - plan.needed
    return replace(plan, spare=spare)


def _sum(rows: list[MeasuredRow]) -> MeasuredRow:
    return MeasuredRow(sum(r.model for r in rows), sum(r.context for r in rows), sum(r.compute for r in rows))


def _verdict(plan: Plan, places: tuple[MemoryPlan, ...], fits: bool) -> list[Reason]:
    if fits:
        return []
    old = [r for r in plan.reasons if r.code in _VERDICTS]
    worst = min(places, key=lambda p: p.spare if p.spare is not None else 0)
    short = accounts.mib_text(-(worst.spare or 0))
    name = accounts.RAM if worst.name == HOST else worst.name
    missing = Reason(
        "does_not_fit",
        f"does not fit: the engine needs {short} more on {name} than it may",
        worst.spare,
    )
    return [missing, *(r for r in old if r.code == "would_fit")]
