"""The environment of a child: only what it needs, so that nothing of the daemon's own leaks or steers it.

Every `LLAMA_ARG_*` variable would be read as a flag, proxies and tokens are not its business.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

MARKER = "APPLIANCE_ENGINE"
"""Holds a random word per start: proof that a process is the one that a pid file names."""

KEY = "LLAMA_API_KEY"
"""llama-server reads it by itself; our Python children copy it into their settings."""

_KEPT = frozenset(
    {
        "PATH", "HOME", "USER", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "TMP", "TEMP", "TZ",
        "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME",
        "VK_ICD_FILENAMES", "VK_DRIVER_FILES", "CUDA_DEVICE_ORDER", "CUDA_CACHE_PATH",
        "HSA_OVERRIDE_GFX_VERSION", "OMP_NUM_THREADS", "SYSTEMROOT", "SYSTEMDRIVE", "COMSPEC", "PATHEXT",
        "APPDATA", "LOCALAPPDATA", "USERPROFILE", "PROGRAMDATA",
    }
)  # fmt: skip


def child_environment(
    *,
    key: str | None = None,
    marker: str | None = None,
    python: bool = False,
    home: str | None = None,
    program: str | None = None,
    base: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """A cleaned copy of `base` (default: ours), with the key and the marker of this start.

    `*_VISIBLE_DEVICES` passes: it is how a user picks GPUs. `python` keeps PYTHONPATH, for our children.
    `home` is the folder of an installed build: its packages come before all others (`python`), or its own
    libraries do (`program` is its executable).
    """
    source = os.environ if base is None else base
    env = {k: v for k, v in source.items() if k in _KEPT or k.endswith("_VISIBLE_DEVICES")}
    if python and "PYTHONPATH" in source:
        env["PYTHONPATH"] = source["PYTHONPATH"]
    if home is not None and python:
        env["PYTHONPATH"] = _first(home, env.get("PYTHONPATH"))
    if home is not None and program is not None:
        env["LD_LIBRARY_PATH"] = _first(os.path.dirname(program), env.get("LD_LIBRARY_PATH"))
    env["GGML_NO_BACKTRACE"] = "1"  # else an abort forks gdb or lldb
    env["PYTHONUNBUFFERED"] = "1"
    if key is not None:
        env[KEY] = key
    if marker is not None:
        env[MARKER] = marker
    return env


def _first(folder: str, others: str | None) -> str:
    return folder if not others else os.pathsep.join((folder, others))
