"""How long a model takes to load: from the disk and from RAM, as we do it and as the engine does by itself.

    python -m benchmarks.load [--mib N] [--rounds N] [--engine xllamacpp|llama-server ...]

One load is what a daemon does: look at the machine, plan (the engine measures), start, first token. "Ours"
begins to read the file with the look; "default" leaves reading to the engine. The floor is one plain read in
order. All in turn, so that a busy moment hits all alike; medians, and the ratios, which travel better than
seconds. Needs a file system that lets go of a file (no tmpfs). Exit code 1 when a cold load of ours is slower
than the default by more than the bar.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from appliance.engines import Engine, Launch
from appliance.engines.startup import Preheat, cached, may_preheat, spare_ram
from appliance.operations.machine.survey import survey
from appliance.operations.plans.plan import plan_subject
from appliance.operations.plans.subject import of_file
from appliance.operations.plans.wishes import Wishes, request_for
from appliance.paths import Paths
from appliance.settings import Engine as EngineSettings
from appliance.settings import Settings
from appliance.units import MIB, size
from tests import models
from tests.engines.binaries import llama_server
from tests.engines.launches import without_devices
from tests.engines.tall_file import write_tall

BAR = 1.1
_BLOCK = 4 * MIB
_CTX = 512


@dataclass
class Times:
    """Seconds of each way, one a round."""

    floor_cold: list[float] = field(default_factory=list)
    floor_warm: list[float] = field(default_factory=list)
    default_cold: list[float] = field(default_factory=list)
    ours_cold: list[float] = field(default_factory=list)
    default_warm: list[float] = field(default_factory=list)
    ours_warm: list[float] = field(default_factory=list)


def drop(path: Path) -> None:
    """Take a file out of RAM. Ends the program where that is not possible."""
    fd = os.open(path, os.O_RDONLY)
    try:
        for _ in range(5):
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)
    found = cached([path])
    if found is None or found.fraction > 0.05:
        sys.exit(f"{path} can't be taken out of RAM; choose another folder with TMPDIR.")


def read(path: Path) -> float:
    """One plain sequential read, in seconds."""
    buffer = bytearray(_BLOCK)
    began = time.perf_counter()
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass
    return time.perf_counter() - began


async def load(settings: Settings, paths: Paths, file: Path, *, ours: bool) -> float:
    """Look, plan, start, first token; in seconds."""
    began = time.perf_counter()
    ahead = Preheat([file])
    found = cached([file])
    if ours and found is not None and may_preheat(found.n_bytes, found, spare_ram()).preheat:
        ahead.start()
    looked = await survey(settings, paths=paths)
    subject = await asyncio.to_thread(of_file, file)
    wishes = Wishes(ctx=_CTX, parallel=1)
    plan = await plan_subject(subject, looked=looked, request=request_for(settings, wishes), paths=paths)
    engine = Engine(looked.build(), Launch("benchmark", file, plan), paths=paths)
    await engine.start()
    try:
        await engine.wait_ready()
        return time.perf_counter() - began
    finally:
        ahead.stop()
        await engine.stop()


async def rounds(settings: Settings, paths: Paths, file: Path, count: int) -> Times:
    """Each way once a round, the one and the other first by turns."""
    found = Times()
    await load(settings, paths, file, ours=False)  # the engine's own files are in RAM from now on
    for turn in range(count):
        drop(file)
        found.floor_cold.append(read(file))
        found.floor_warm.append(read(file))
        for ours in (turn % 2 == 0, turn % 2 == 1):
            warm, cold = (
                (found.ours_warm, found.ours_cold) if ours else (found.default_warm, found.default_cold)
            )
            read(file)
            warm.append(await load(settings, paths, file, ours=ours))
            drop(file)
            cold.append(await load(settings, paths, file, ours=ours))
    return found


def show(name: str, n_bytes: int, found: Times) -> float:
    """One table; the ratio that has a bar."""
    print(f"\n{name}, {size(n_bytes)}")
    middle: dict[str, float] = {key: statistics.median(values) for key, values in vars(found).items()}
    for key, values in vars(found).items():
        print(f"  {key.replace('_', ' '):13} {middle[key]:7.2f} s   ({min(values):.2f} to {max(values):.2f})")
    cold = middle["ours_cold"] / middle["default_cold"]
    print(
        f"  cold: ours / default x{cold:.2f}; ours / floor x{middle['ours_cold'] / middle['floor_cold']:.1f}"
    )
    print(f"  warm: ours / default x{middle['ours_warm'] / middle['default_warm']:.2f}")
    print(f"  cold / warm: default x{middle['default_cold'] / middle['default_warm']:.2f}", end="")
    print(f", ours x{middle['ours_cold'] / middle['ours_warm']:.2f}")
    return cold


def settings_for(kind: str) -> Settings:
    path = str(llama_server()) if kind == "llama-server" else ""
    return Settings(engine=EngineSettings.model_validate({"kind": kind, "llama_server": path}))


async def measure(kinds: Sequence[str], files: Sequence[Path], folder: Path, count: int) -> list[float]:
    """All tables; the ratios that have a bar."""
    paths = Paths(*(folder / name for name in ("config", "data", "state", "cache", "run"))).make()
    ratios = []
    with without_devices():
        for kind in kinds:
            for file in files:
                found = await rounds(settings_for(kind), paths, file, count)
                ratios.append(show(f"{kind}: {file.name}", file.stat().st_size, found))
    return ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--mib", type=int, default=1024, help="size of the large model")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--engine", nargs="+", default=["xllamacpp", "llama-server"])
    parser.add_argument("--large-only", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="load") as name:
        folder = Path(name)
        large = write_tall(models.gemma3_270m(), folder / "large.gguf", given.mib * MIB)
        files = [large]
        if not given.large_only:
            files.append(Path(shutil.copy(models.smollm2(), folder / "small.gguf")))
        ratios = asyncio.run(measure(given.engine, files, folder, given.rounds))
    sys.exit(1 if max(ratios) > BAR else 0)


if __name__ == "__main__":
    main()
