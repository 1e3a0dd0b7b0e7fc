"""The daemon in the background: started here, followed until it is ready, then left alone."""

from __future__ import annotations

import json
import selectors
import subprocess
import sys
from pathlib import Path
from typing import Any

from appliance.cli.output import daemon, find_paths
from appliance.cli.progress import Bar
from appliance.errors import ApplianceError

POLL_S = 0.3
TAIL_LINES = 15


def start(arguments: list[str]) -> dict[str, Any]:
    """Run `appliance ARGUMENTS` detached; its ready document.

    Raises the ApplianceError that the start ended with. Ctrl-C stops the background start, too.
    """
    paths = find_paths().make()
    log = paths.logs / "up.log"
    with log.open("wb") as errors:
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "appliance.cli.main", *arguments],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, start_new_session=True,
        )  # fmt: skip
    try:
        line = _first_line(child)
    except BaseException:
        child.terminate()
        child.wait()
        raise
    if not line:
        if child.wait() == 0:  # it ends like this for one reason alone
            raise ApplianceError(
                "The start was stopped by `appliance down` before the model was ready.",
                hint="The same command starts it again; what was downloaded is kept.",
            )
        raise ApplianceError(
            f"The daemon ended with exit code {child.returncode} before it was ready.",
            cause=_tail(log),
            hint="Run the same command without --detach to watch it.",
        )
    document: dict[str, Any] = json.loads(line)
    if "error" in document:
        from appliance.client.transport import error_of

        child.wait()
        raise error_of(document["error"], ApplianceError.status)
    return document


def _first_line(child: subprocess.Popen[bytes]) -> bytes:
    """The child's first line of output (empty when there is none), with its download shown meanwhile."""
    assert child.stdout is not None
    with selectors.DefaultSelector() as ready, Bar() as bar:
        ready.register(child.stdout, selectors.EVENT_READ)
        while not ready.select(POLL_S):
            _show_progress(bar, child.pid)
        return child.stdout.readline()


def _show_progress(bar: Bar, pid: int) -> None:
    try:
        client = daemon()
        rows = client.downloads() if client.pid == pid else ()
    except ApplianceError:
        return  # not up yet, or busy: the next look may find it
    for row in rows:
        if not (row.ended or row.paused):
            bar.row(row)


def _tail(log: Path) -> str:
    from appliance.text import clean

    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL_LINES:]
    return clean("\n".join(lines)) or "It printed nothing."
