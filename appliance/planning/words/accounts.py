"""The account of each place, line by line. Whole MiB, which add up as printed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from appliance.planning.result import MemoryPlan, Reason
from appliance.planning.values import DeviceMemory, Holder
from appliance.units import MIB

MEMORY_CODES = frozenset({"free", "reserve", "weights", "kv", "compute", "overhead", "spare", "short"})
"""Codes of the lines that a measurement replaces."""
RAM = "RAM"


def memory_lines(plan: MemoryPlan, *, host: bool) -> list[Reason]:
    """Free minus all that is taken is what is left."""
    name = RAM if host else plan.name
    source = "system" if host else "driver"
    exact = "measured by the engine" if plan.how == "measured" else "exact, from the header"
    formula = "measured by the engine" if plan.how == "measured" else "computed"
    beside = "seen here" if plan.overhead_how == "learned" else "typical"
    lines = [Reason("reserve", f"kept free on {name} {mib_text(plan.reserve)} (reserve)", plan.reserve)]
    if plan.free is not None:
        text = f"free on {name} now {mib_text(plan.free)} ({source})"
        if plan.ours:
            now = mib_text(plan.free - plan.ours)
            text = f"free on {name} {mib_text(plan.free)} once the model served now has gone (now {now})"
        lines.insert(0, Reason("free", text, plan.free))
    taken = [
        Reason("weights", f"weights on {name} {mib_text(plan.model)} ({exact})", plan.model),
        Reason("kv", f"KV cache on {name} {mib_text(plan.kv)} ({exact})", plan.kv),
        Reason("compute", f"compute buffer on {name} {mib_text(plan.compute)} ({formula})", plan.compute),
        Reason(
            "overhead", f"{_overhead(host)} on {name} {mib_text(plan.overhead)} ({beside})", plan.overhead
        ),
    ]
    lines += [line for line in taken if line.n_bytes]
    if plan.free is not None and plan.spare is not None:
        shown = round(plan.free / MIB) - sum(round((r.n_bytes or 0) / MIB) for r in lines[1:])
        if (
            plan.spare >= 0 > shown
        ):  # rounded figures may be one more than what fits: the typical one gives way
            lines[-1] = _less(lines[-1], -shown)
            shown = 0
        if plan.spare >= 0:
            lines.append(Reason("spare", f"left on {name} {shown} MiB", plan.spare))
        else:
            lines.append(Reason("short", f"missing on {name} {-shown} MiB", plan.spare))
    return lines


def held_lines(devices: Sequence[DeviceMemory]) -> list[Reason]:
    """Which other programs hold memory of the devices."""
    lines: list[Reason] = []
    for device in devices:
        if device.held:
            known = sum(holder.n_bytes or 0 for holder in device.held)
            names = ", ".join(_holder(holder) for holder in device.held)
            lines.append(
                Reason("held", f"other programs hold memory on {device.name}: {names}", known or None)
            )
    return lines


def mib_text(n_bytes: int) -> str:
    """Whole MiB."""
    return f"{round(n_bytes / MIB)} MiB"


def _less(line: Reason, mib: int) -> Reason:
    n_bytes = line.n_bytes or 0
    return replace(line, text=line.text.replace(mib_text(n_bytes), mib_text(n_bytes - mib * MIB)))


def _holder(holder: Holder) -> str:
    size = "size unknown" if holder.n_bytes is None else mib_text(holder.n_bytes)
    return f"{holder.name} {size}" if holder.n_bytes is not None else f"{holder.name} ({size})"


def _overhead(host: bool) -> str:
    return "engine process and shared memory" if host else "driver"
