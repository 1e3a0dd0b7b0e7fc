"""Reading the header of a model with 262,144 tokens (Gemma 3 270M), beside the reader of gguf-py.

    python -m benchmarks.header     # medians in turn; exit code 1 above 30 ms

gguf-py is measured where a Python has it: APPLIANCE_GGUF_PY names that Python, else the environment `gguf-py`
beside the cached test models is looked for (python -m venv FOLDER; FOLDER/bin/pip install gguf).
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from appliance.gguf import read_header
from tests import models

BAR_S = 0.030
ROUNDS = 3
OURS_PER_ROUND = 11
_THEIRS = """
import sys, time
from gguf import GGUFReader
began = time.perf_counter()
reader = GGUFReader(sys.argv[1])
print(time.perf_counter() - began, len(reader.fields), len(reader.tensors))
"""


def ours(path: Path) -> list[float]:
    """Wall times of some reads."""
    times = []
    for _ in range(OURS_PER_ROUND):
        began = time.perf_counter()
        read_header(path)
        times.append(time.perf_counter() - began)
    return times


def other_python() -> Path | None:
    """A Python that has gguf-py."""
    named = os.environ.get("APPLIANCE_GGUF_PY")
    python = Path(named) if named else models.cache_folder() / "gguf-py" / "bin" / "python"
    return python if python.exists() else None


def theirs(python: Path, path: Path) -> float:
    """Wall time of one read in a process of its own, without its imports."""
    done = subprocess.run(
        [str(python), "-c", _THEIRS, str(path)], capture_output=True, text=True, check=True, timeout=300
    )
    return float(done.stdout.split()[0])


def show(name: str, times: list[float]) -> None:
    print(f"{name:24} {statistics.median(times) * 1e3:9.1f} ms  "
          f"({min(times) * 1e3:.1f} to {max(times) * 1e3:.1f}, {len(times)} reads)")  # fmt: skip


def main() -> int:
    path, python = models.gemma3_270m(), other_python()
    began = time.perf_counter()
    read_header(path)
    first = time.perf_counter() - began
    found: list[float] = []
    compared: list[float] = []
    for _ in range(ROUNDS):
        found += ours(path)
        if python is not None:
            compared.append(theirs(python, path))
    show("read_header", found)
    print(f"{'  its first read':24} {first * 1e3:9.1f} ms  (compiles the walk over strings)")
    if compared:
        show("gguf-py's GGUFReader", compared)
        print(f"{'ratio':24} {statistics.median(compared) / statistics.median(found):9.0f}")
    else:
        print("gguf-py is not installed in an environment of its own: only ours was measured")
    print(f"{'bar':24} {BAR_S * 1e3:9.1f} ms")
    return 0 if statistics.median(found) <= BAR_S else 1


if __name__ == "__main__":
    sys.exit(main())
