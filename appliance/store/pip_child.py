"""pip, in a process that ends with the one that started it. `pip_child.py PARENT ARGS...`

A pip that outlives its owner would go on filling the disk. Standard library and pip only.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys

_PR_SET_PDEATHSIG = 1
_ORPHANED = 125


def main() -> None:
    """Arm the parent-death signal (Linux), then be pip."""
    parent = int(sys.argv[1])
    if sys.platform.startswith("linux"):
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it ended before the signal was armed
            sys.exit(_ORPHANED)
    sys.argv = ["pip", *sys.argv[2:]]
    runpy.run_module("pip", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
