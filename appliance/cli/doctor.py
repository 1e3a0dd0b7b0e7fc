"""`doctor`: what is wrong here, why, and the command that mends it; with `--bundle`, packed for a helper."""

from __future__ import annotations

import time
from pathlib import Path

import click

from appliance.cli.output import cell, daemon_or_none, emit, find_paths, json_option, run, say, say_wrapped
from appliance.errors import UsageError
from appliance.units import size

MARKS = {"ok": "✓", "note": "·", "problem": "✖"}
_HERE = ""


@click.command()
@click.option(
    "--bundle",
    is_flag=False,
    flag_value=_HERE,
    metavar="[FILE.zip]",
    help="Pack the timeline, findings, settings and logs into a file, without prompts and keys.",
)
@click.option("--force", is_flag=True, help="Replace a bundle that is there already.")
@json_option
@click.pass_context
def doctor(ctx: click.Context, bundle: str | None, force: bool, as_json: bool) -> None:
    """Examine this installation. Exits 1 when something needs mending."""
    from appliance.operations.doctor import examine

    if bundle is not None:
        _bundle(bundle, force, as_json)
        return
    if force:
        raise UsageError("--force needs --bundle.", hint="`appliance doctor --bundle FILE.zip --force`.")
    client = daemon_or_none()
    findings = run(examine(find_paths(), client.url if client else None))
    healthy = all(finding.level != "problem" for finding in findings)
    if as_json:
        emit({"healthy": healthy, "findings": [finding.to_json() for finding in findings]})
    else:
        for finding in findings:
            say(f"{MARKS[finding.level]} {finding.check}: {cell(finding.detail)}")
            if finding.todo:
                say(f"  Do: {finding.todo}")
    if not healthy:
        ctx.exit(1)


def _bundle(wanted: str, force: bool, as_json: bool) -> None:
    from appliance.operations.bundle import NO_PROMPTS, default_name, pack

    client = daemon_or_none()
    file = Path(wanted or default_name(time.time()))
    packed = run(pack(find_paths(), file, client.url if client else None, force=force))
    if as_json:
        emit(packed.to_json())
        return
    say(f"{file} ({size(packed.n_bytes)}) holds:")
    for member in packed.members:
        say_wrapped(f"{member.name}: {cell(member.what)}", "  ")
    for missing in packed.missing:
        say_wrapped(f"Not in it: {missing.name}, since {cell(missing.why)}", "  ")
    say(NO_PROMPTS)
    say(f"`appliance replay {file}` shows what it tells.")
