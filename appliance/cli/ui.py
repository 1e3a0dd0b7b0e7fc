"""`appliance` alone: the terminal UI over the running daemon; starts one when none runs."""

from __future__ import annotations

import sys

from appliance.cli.output import daemon_or_none, find_paths, library, remark
from appliance.errors import UsageError


def open_ui() -> int:
    """Open the UI; the daemon keeps serving when it is closed."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "The terminal UI needs a terminal.",
            hint="In a script use `appliance status --json` or `appliance up`.",
        )
    if daemon_or_none() is None:
        from appliance.cli.detach import start

        default = library().default()
        remark("Starting the daemon ...")
        start(["up", default.ref if default else "--empty", "--json"])
    from tui.run import run

    return run(find_paths())
