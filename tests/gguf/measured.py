"""Run as a program: reads the header of files and prints what that cost, for tests that hold it to limits."""

from __future__ import annotations

import json
import resource
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from appliance.errors import GgufError
from appliance.gguf import read_header

_PACE_S = 0.012
"""What `_reference` takes on a quiet computer."""


@dataclass(frozen=True, slots=True)
class Cost:
    """`refusal` is the error's text, None when the header was read."""

    cpu_s: float
    """The least of three rounds, each brought to the pace of a quiet computer when this one is slower."""
    peak: int
    """Bytes by which the process has grown at most, with this file or one before it."""
    refusal: str | None


def measure(paths: Sequence[Path]) -> list[Cost]:
    """Read the files, in a process of its own."""
    words = [sys.executable, "-m", "tests.gguf.measured", *map(str, paths)]
    done = subprocess.run(words, capture_output=True, timeout=120, check=True)
    return [Cost(**cost) for cost in json.loads(done.stdout)]


def _main(paths: list[Path]) -> None:
    costs, before = [], _most_memory()
    for path in paths:
        times = [_paced(path) for _ in range(3)]
        costs.append({"cpu_s": min(times), "peak": _most_memory() - before, "refusal": _read(path)})
    print(json.dumps(costs))


def _most_memory() -> int:
    """Bytes that this process has held at most."""
    status = Path("/proc/self/status")  # getrusage counts what the parent held before the exec
    if status.exists():
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _paced(path: Path) -> float:
    before, work, after = _timed(_reference), _timed(lambda: _read(path)), _timed(_reference)
    return work / max(1.0, (before + after) / 2 / _PACE_S)


def _timed(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def _reference() -> int:
    data, unpack, total = bytes(8_192), struct.Struct("<Q").unpack_from, 0
    for at in range(100_000):
        total += unpack(data, at & 4_095)[0]
    return total


def _read(path: Path) -> str | None:
    try:
        read_header(path)
    except GgufError as error:
        return str(error)
    return None


if __name__ == "__main__":
    _main([Path(name) for name in sys.argv[1:]])
