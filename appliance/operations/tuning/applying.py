"""What was tuned here, set on a plan: never over what the user asked for, and only while the plan fits."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

from appliance.operations.tuning import tuned_file
from appliance.operations.tuning.fitting import Ground
from appliance.operations.tuning.knobs import Knobs, of_plan, words
from appliance.operations.tuning.tuned_file import Entry
from appliance.planning import Plan, PlanRequest, Reason

CODE = "tuned"


async def applied(plan: Plan, ground: Ground) -> Plan:
    """The plan with the settings that were measured to be the best, and a line that says so.

    As it was, without a line, where nothing was measured; with a line, where what was measured does not fit.
    """
    sha256 = ground.subject.sha256
    if sha256 is None or not plan.fits:
        return plan
    known = await asyncio.to_thread(tuned_file.read, ground.paths.tuned)
    entry = known.get(tuned_file.key_of(sha256, ground.build, plan))
    if entry is None:
        return plan
    own, when = of_plan(plan), moment(entry.at)
    knobs = allowed(entry.knobs, own, ground.request, ground.least_ubatch)
    if knobs == own:
        return _with_line(plan, f"tuned here on {when}: nothing is faster than what is planned")
    found = await ground.with_settings(plan, knobs)
    if found is None:
        return _with_line(plan, f"what was tuned here on {when} is left out: it does not fit now")
    return _with_line(found, line(entry, knobs, own))


def allowed(tuned: Knobs, own: Knobs, request: PlanRequest, least_ubatch: int) -> Knobs:
    """The tuned settings as far as nobody asked for others, and no picture fails."""
    n_ubatch = own.n_ubatch if request.n_ubatch is not None else max(tuned.n_ubatch, least_ubatch)
    flash = own.flash_attn if own.flash_attn == "on" else tuned.flash_attn  # the plan can't do without it
    return replace(tuned, n_ubatch=n_ubatch, n_batch=max(tuned.n_batch, n_ubatch), flash_attn=flash)


def line(entry: Entry, knobs: Knobs, own: Knobs) -> str:
    """What was changed, when that was measured, and what it gains."""
    many = "" if entry.many is None else f", all slots x{entry.many:.2f}"
    gain = f"prefill x{entry.prefill:.2f}, decode x{entry.decode:.2f}{many} of the engine's own defaults"
    goal = " for short pauses" if entry.goal == "latency" else ""
    return f"tuned here on {moment(entry.at)}{goal}: {words(knobs, own)}; {gain}"


def moment(at: float) -> str:
    """`30 Nov, 18:02` on this machine's clock."""
    local = time.localtime(at)
    return f"{local.tm_mday} {time.strftime('%b, %H:%M', local)}"


def _with_line(plan: Plan, text: str) -> Plan:
    return replace(plan, reasons=(*plan.reasons, Reason(CODE, text)))
