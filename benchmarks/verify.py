"""`Store.verify` of 1 GiB in memory, beside `hashlib.file_digest` of the same file.

python -m benchmarks.verify [MIB]     # medians of 5 in turn; exit code 1 below 0.9
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from appliance.catalog import File, FileSource, Model, ModelRef, Variant
from appliance.paths import Paths
from appliance.store import Store
from benchmarks.download import write_model

BAR = 0.9
ROUNDS = 5


def by_hashlib(path: Path) -> float:
    began = time.perf_counter()
    with path.open("rb") as file:
        hashlib.file_digest(file, "sha256").hexdigest()
    return time.perf_counter() - began


def by_store(store: Store, ref: ModelRef) -> float:
    began = time.perf_counter()
    asyncio.run(store.verify(ref))
    return time.perf_counter() - began


def adopted(source: Path, sha256: str, size: int, home: Path) -> tuple[Store, ModelRef]:
    """A store that has the file, by hard link."""
    file = File(name="tiny.gguf", size=size, sha256=sha256)
    variant = Variant(quant="F32", source=FileSource(kind="file", path=str(source)), files=(file,))
    ref = ModelRef(Model(id="tiny", family="tiny", name="Tiny", use=("chat",), variants=(variant,)), variant)
    paths = Paths(*(home / part for part in ("config", "data", "state", "cache", "run"))).make()
    store = Store(paths, env={})
    asyncio.run(store.adopt(ref, [source], "link"))
    return store, ref


def main() -> int:
    size = int(sys.argv[1] if len(sys.argv) > 1 else 1024) << 20
    folder = Path(tempfile.mkdtemp(prefix="appliance-bench-", dir="/dev/shm"))
    try:
        source = folder / "tiny.gguf"
        store, ref = adopted(source, write_model(source, size), size, folder / "home")
        theirs: list[float] = []
        ours: list[float] = []
        for _ in range(ROUNDS):
            theirs.append(by_hashlib(source))
            ours.append(by_store(store, ref))
    finally:
        shutil.rmtree(folder)
    for name, times in (("hashlib.file_digest", theirs), ("Store.verify", ours)):
        middle = statistics.median(times)
        spread = f"{min(times):.2f} to {max(times):.2f}"
        print(f"{name:20} {middle:6.2f} s  {size / middle / 1e6:8.0f} MB/s  ({spread})")
    ratio = statistics.median(theirs) / statistics.median(ours)
    print(f"{'ratio':20} {ratio:6.2f}  (at least {BAR})")
    return 0 if ratio >= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
