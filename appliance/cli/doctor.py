"""`doctor`: what is wrong here, why, and the command that mends it."""

from __future__ import annotations

import click

from appliance.cli.output import cell, daemon_or_none, emit, find_paths, json_option, run, say

MARKS = {"ok": "✓", "note": "·", "problem": "✖"}


@click.command()
@json_option
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> None:
    """Examine this installation. Exits 1 when something needs mending."""
    from appliance.operations.doctor import examine

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
