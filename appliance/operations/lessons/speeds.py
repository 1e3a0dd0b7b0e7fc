"""Decode speeds that were seen here, for people: with and without a daemon."""

from __future__ import annotations

from collections.abc import Mapping

from appliance.journal import CONDITIONS, read_speeds
from appliance.paths import Paths
from appliance.planning import Plan


def plan_key(plan: Plan) -> str:
    """What of a plan decides its speed, in short: replies with the same key can be compared."""
    parts = [str(plan.engine_build), str(plan.gpu_layers), plan.kv_type]
    parts += [f"moe{plan.cpu_moe}"] if plan.cpu_moe else []
    parts += [plan.split] if plan.split != "layer" else []
    parts += [f"draft-{plan.draft}"] if plan.draft is not None else []
    return "/".join(parts)


def seen(paths: Paths, ref: str, plan: Plan | None = None) -> Mapping[str, float | None]:
    """Tokens per second of one request by condition (`cold`, `hot`, `battery`); None: not seen here yet.

    With a `plan` only what was seen with one like it; without, with the plan of the newest reply. Reads the
    journal's file and changes nothing, also while a daemon writes it. Raises nothing.
    """
    key = None if plan is None else plan_key(plan)
    found = {one.condition: one.tokens_per_second for one in read_speeds(paths.journal_file, ref, key)}
    return {condition: found.get(condition) for condition in CONDITIONS}
