"""`replay`: what would have happened, by a recorded or written trace."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from appliance.cli.output import emit, find_paths, json_option
from appliance.errors import UsageError
from appliance.units import parse_duration

if TYPE_CHECKING:
    from appliance.operations.replay.source import Source


@click.command()
@click.argument("trace", required=False)
@click.option(
    "--settings",
    "settings_file",
    type=click.Path(path_type=Path),
    help="A config.toml to replay under; without it, this machine's, or those in the bundle.",
)
@click.option("--last", metavar="TIME", help="Instead of TRACE: so much of this machine's journal, like 30m.")
@json_option
def replay(trace: str | None, settings_file: Path | None, last: str | None, as_json: bool) -> None:
    """Run the thermal rule and the router over TRACE, and print what would have happened.

    TRACE is a file with one JSON object per line, recorded or written by hand, a bundle that `appliance
    doctor --bundle` has made, or - for stdin. No daemon is asked, and nothing is changed.
    """
    from appliance.cli.replay_text import print_report
    from appliance.operations.replay.reading import read
    from appliance.operations.replay.run import replay as run
    from appliance.operations.replay.settings_of import under_of

    source = _source(trace, last)
    under = under_of(settings_file, source, find_paths())
    report = run(read(source.data, source.name), under)
    if as_json:
        emit({**report.to_json(), "settings": under.to_json()})
    else:
        print_report(report, under)


def _source(trace: str | None, last: str | None) -> Source:
    from appliance.operations.replay import source

    if (trace is None) == (last is None):
        raise UsageError(
            "Name one trace." if trace is None else "A trace and --last can't be replayed together.",
            hint="`appliance replay TRACE`, or `appliance replay --last 30m` for this machine's journal.",
        )
    if trace == "-":
        return source.of_stream(sys.stdin.buffer)
    if trace is not None:
        return source.of_file(Path(trace))
    return source.of_journal(find_paths().journal_file, time.time(), _seconds(last or ""))


def _seconds(text: str) -> float:
    try:
        found = parse_duration(text)
    except ValueError as error:
        raise UsageError(f"--last can't be {text!r}.", cause=str(error)) from None
    if found <= 0:
        raise UsageError("--last is no time.", hint="Write how long, like --last 30m.")
    return found
