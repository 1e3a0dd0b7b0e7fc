"""The UI from the outside: open it on this terminal and stay until the user leaves."""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING

from appliance.client import Client
from tui import state
from tui.app import ApplianceApp
from tui.terminal import file_logging, prefers_ascii

if TYPE_CHECKING:
    from appliance.paths import Paths

POLL_TIMEOUT_S = 3.0


def run(paths: Paths, *, ascii_only: bool | None = None, smoke_s: float | None = None) -> int:
    """Open the UI of the running daemon and stay until the user leaves. Returns the exit code.

    Connects only; whoever calls this starts a daemon first when there is none. `smoke_s` leaves by itself
    after so many seconds.
    """
    app = ApplianceApp(
        lambda: Client.connect(paths, timeout_s=POLL_TIMEOUT_S),
        ascii_only=prefers_ascii(os.environ) if ascii_only is None else ascii_only,
    )
    if smoke_s is not None:
        app.call_later(app.set_timer, smoke_s, app.action_leave)
    with file_logging(paths):
        app.run()
    code = app.return_code or 0
    last = (
        state.farewell(app.view)
        if code == 0
        else f"This UI failed; its log is in {paths.logs}. The appliance goes on."
    )
    sys.stdout.write(last + "\n")
    sys.stdout.flush()
    gc.freeze()  # the process ends here: without this its last collections take longer than all of the exit
    return code
