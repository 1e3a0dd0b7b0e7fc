"""Run as a program: reads the header of files and prints what that cost, for tests that hold it to limits."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from appliance.errors import GgufError
from appliance.gguf import read_header

_PACE_S = 0.012
"""What `_reference` takes on a quiet computer."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Of the dearest file. `refusal` is the last error's text, None when the header was read."""

    cpu_s: float
    """The least of five rounds, each brought to the pace of a quiet computer when this one is slower."""
    peak: int
    refusal: str | None


def measure(*paths: Path) -> Cost:
    """Read the files in a process of its own."""
    words = [sys.executable, "-m", "tests.gguf.measured", *map(str, paths)]
    done = subprocess.run(words, capture_output=True, timeout=60, check=True)
    return Cost(**json.loads(done.stdout))


def _main(paths: list[Path]) -> None:
    dearest = max(min(_paced(path) for _ in range(5)) for path in paths)
    tracemalloc.start()
    refusal = [_read(path) for path in paths][-1]
    peak = tracemalloc.get_traced_memory()[1]
    print(json.dumps({"cpu_s": dearest, "peak": peak, "refusal": refusal}))


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
