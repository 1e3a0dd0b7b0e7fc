"""`bench`: what this machine reaches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from appliance.cli.output import daemon_or_none, emit, json_option, library, remark, run, say
from appliance.cli.wishes import ctx_option, engine_option, layers_option, parallel_option, ubatch_option
from appliance.errors import ApplianceError
from appliance.text import clean_line

if TYPE_CHECKING:
    from appliance.operations.tuning.candidates import Candidate
    from appliance.operations.tuning.measuring import Speeds

_AT_REST = frozenset({"absent", "failed"})


@click.group()
def bench() -> None:
    """Measure what this machine reaches."""


@bench.command()
@click.argument("model", required=False)
@click.option(
    "--goal",
    type=click.Choice(["throughput", "latency"]),
    default="throughput",
    help="latency: also a batch so small that a long prompt stops running streams for no longer than "
    "goals.itl_p99.",
)
@click.option("--rounds", type=click.IntRange(1, 9), default=3, show_default=True, help="More take longer.")
@click.option("--anyway", is_flag=True, help="Also on a machine that other programs keep busy.")
@click.option("--dry-run", is_flag=True, help="Say what would be tried; measure nothing.")
@ctx_option
@parallel_option
@layers_option
@ubatch_option
@engine_option
@json_option
def tune(
    model: str | None,
    goal: str,
    rounds: int,
    anyway: bool,
    dry_run: bool,
    as_json: bool,
    **wishes: Any,
) -> None:
    """Try a few settings with MODEL here, and keep the best for later plans.

    The engine's own defaults are among them, and nothing slower than those is kept. It takes some minutes;
    nothing else should run meanwhile.
    """
    if dry_run:
        document = run(_would_try(model, wishes))
    else:
        _require_idle()
        document = run(_tune(model, goal, rounds, wishes, anyway=anyway, quiet=as_json))
    if as_json:
        emit(document)
    else:
        from appliance.cli import bench_text

        bench_text.candidates(document) if dry_run else bench_text.outcome(document)


def _require_idle() -> None:
    """Raises ApplianceError while a daemon has a model loaded: beside it a measurement says nothing."""
    client = daemon_or_none()
    if client is None:
        return
    loaded = [engine.model for engine in client.status().engines if engine.state not in _AT_REST]
    if loaded:
        raise ApplianceError(
            "A model is loaded, and beside it a measurement says nothing.",
            cause=f"The daemon serves {clean_line(', '.join(str(one) for one in loaded), 200)}.",
            hint="`appliance down` ends it; measure, then `appliance up` again.",
        )


async def _would_try(model: str | None, wishes: dict[str, Any]) -> dict[str, Any]:
    from appliance.operations.plans.wishes import Wishes
    from appliance.operations.tuning import bench as door

    return (await door.prepare(library(), model, Wishes(**wishes))).document()


async def _tune(
    model: str | None, goal: str, rounds: int, wishes: dict[str, Any], *, anyway: bool, quiet: bool
) -> dict[str, Any]:
    import asyncio

    from appliance.operations.plans.wishes import Wishes
    from appliance.operations.tuning import bench as door
    from appliance.operations.tuning import tuning

    opened, load = library(), tuning.load_average()
    prepared = await door.prepare(opened, model, Wishes(**wishes))
    if not anyway:
        door.require_quiet(prepared.machine, load)
    if not quiet:
        say(f"{prepared.ref.ref} with {prepared.bench.build.build}, {len(prepared.tried)} settings")
    pause_s = opened.settings.goals.itl_p99
    aim = tuning.Aim("latency" if goal == "latency" else "throughput", pause_s, rounds)
    outcome = await tuning.tune(prepared.bench, prepared.tried, aim, on_step=_step)
    await asyncio.to_thread(_require_idle)  # what was loaded meanwhile took its share: nothing is kept
    kept = await asyncio.to_thread(door.keep, prepared, outcome)
    return door.document(prepared, outcome, kept=kept)


def _step(number: int, candidate: Candidate, speeds: Speeds | None) -> None:
    if speeds is None:
        remark(f"  round {number}: {candidate.name}: did not start")
        return
    many = "" if speeds.many is None else f", all slots {speeds.many:.0f}"
    remark(
        f"  round {number}: {candidate.name}: prefill {speeds.prefill:.0f} tok/s, "
        f"decode {speeds.decode:.1f}{many}"
    )
