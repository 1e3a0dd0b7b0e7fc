"""Becomes the engine, and takes care that the engine never outlives the daemon. Standard library only.

    launcher.py --parent PID -- ARGV...               Linux: parent-death signal, then exec
    launcher.py --parent PID --lifeline FD -- ARGV... elsewhere: stays, and ends ARGV when the pipe FD closes

A `preexec_fn` could do the first, but it runs Python between fork and exec, which can deadlock in a process
with threads.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading

_PR_SET_PDEATHSIG = 1
CANNOT_START = 126
ORPHANED = 125


def main(argv: list[str]) -> int:
    """Parse by hand: argparse would cost more than the whole rest."""
    split = argv.index("--")
    options, command = argv[:split], argv[split + 1 :]
    parent = int(options[options.index("--parent") + 1])
    os.umask(0o077)  # saved prompts and sockets are the user's own from their first moment
    if "--lifeline" in options:
        return _watch(command, int(options[options.index("--lifeline") + 1]))
    return _become(command, parent)


def _become(command: list[str], parent: int) -> int:
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the signal was armed
        return ORPHANED
    try:
        os.execv(command[0], command)  # noqa: S606 - to become the engine is the point
    except OSError as error:
        sys.stderr.write(f"launcher: cannot start {command[0]}: {error.strerror}\n")
    return CANNOT_START


def _watch(command: list[str], lifeline: int) -> int:
    try:
        child = subprocess.Popen(command)
    except OSError as error:
        sys.stderr.write(f"launcher: cannot start {command[0]}: {error.strerror}\n")
        return CANNOT_START

    def until_closed() -> None:
        with contextlib.suppress(OSError):
            while os.read(lifeline, 1):
                pass
        with contextlib.suppress(OSError):
            child.kill()

    threading.Thread(target=until_closed, daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    code = child.wait()
    if code < 0:  # end the same way, so that the daemon can explain it
        signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
