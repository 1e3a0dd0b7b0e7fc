"""A fake NVML for tests: a real `libnvidia-ml.so.1` that answers from a text file, read again on every call.

    library = nvml_stub.build(cache)                      # gcc, under a second, once per cache folder
    nvml_stub.write_state(state, temp=90, reasons=0x20)   # at any time, acts at once
    nvml_stub.write_state(state, curve__temp=nvml_stub.curve((0, 60), (5, 95), (10, 70)))
    env = nvml_stub.environment(library, state)           # for a child process: the library is process-global

Keys, defaults and meanings: README.md here. `__` in a keyword stands for a dot: `err__nvmlInitWithFlags=9`.
Named machines: `profiles.py`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
import zlib
from collections.abc import Iterable
from pathlib import Path

_SOURCE = Path(__file__).with_name("fake_nvml.c")
_SONAME = "libnvidia-ml.so.1"

SYMBOLS = tuple(
    line.split("(")[0].split()[-1].lstrip("*")
    for line in _SOURCE.read_text(encoding="utf-8").splitlines()
    if line.startswith("R nvml")
)
"""Every function of the stub that can be made to fail."""


def build(cache_dir: Path, without: Iterable[str] = ()) -> Path:
    """Compile the stub into a folder below `cache_dir` of its own, once per version; the library's path.

    `without`: functions that it does not export, as an old driver.
    """
    source, hidden = _SOURCE.read_bytes(), sorted(without)
    folder = cache_dir / f"nvml-stub-{zlib.crc32(source + ' '.join(hidden).encode()):08x}"
    library = folder / _SONAME
    if library.exists():
        return library
    gcc = shutil.which("gcc") or shutil.which("cc")
    if gcc is None:
        raise RuntimeError("the NVML stub needs a C compiler: apt-get install gcc libc6-dev")
    folder.mkdir(parents=True, exist_ok=True)
    built = folder / f"{_SONAME}.{os.getpid()}"
    command = [
        gcc,
        "-shared",
        "-fPIC",
        "-O1",
        f"-Wl,-soname,{_SONAME}",
        "-o",
        str(built),
        str(_SOURCE),
        "-lm",
    ]
    if hidden:
        exports = folder / "exports"
        exports.write_text(f"{{ global: *; local: {' '.join(f'{name};' for name in hidden)} }};\n")
        command.append(f"-Wl,--version-script={exports}")
    subprocess.run(command, check=True, timeout=60)
    built.replace(library)
    return library


def write_state(path: Path, **values: int | str) -> None:
    """Replace the whole state; keys left out go back to their defaults."""
    new = path.with_name(path.name + ".new")
    new.write_text("".join(f"{key.replace('__', '.')} {value}\n" for key, value in values.items()))
    new.replace(path)


def failing(code: int, symbols: Iterable[str] = SYMBOLS, device: int | None = None) -> dict[str, int]:
    """State keys that make these functions return `code`, on all devices or on one."""
    suffix = "" if device is None else f"__{device}"
    return {f"err__{symbol}{suffix}": code for symbol in symbols}


def curve(*points: tuple[float, int], start: float | None = None, loop: bool = False) -> str:
    """The value of a `curve__KEY` (lines between the points) or a `step__KEY` (stairs): (seconds, value) from
    `start`, which is now.
    """
    begin = time.time() if start is None else start
    return " ".join([f"{begin:.3f}", *(f"{at}:{value}" for at, value in points), *(["loop"] if loop else [])])


def environment(library: Path, state: Path, log: Path | None = None) -> dict[str, str]:
    """This process's environment with the stub in front, for a child. `log`: where each call is noted."""
    folders = [str(library.parent), os.environ.get("LD_LIBRARY_PATH", "")]
    return {
        **os.environ,
        "LD_LIBRARY_PATH": os.pathsep.join(part for part in folders if part),
        "FAKE_NVML_STATE": str(state),
        **({"FAKE_NVML_LOG": str(log)} if log is not None else {}),
    }
