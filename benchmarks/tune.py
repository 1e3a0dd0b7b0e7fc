"""Our plan against the engine started with its own defaults: prefill and decode, one stream and four.

    python -m benchmarks.tune [ROUNDS]     # exit code 1 where ours is slower by more than the noise

Both are started with the same context and slots (`-c`, `-np`), in turn; every second round runs backwards, and
figures are ratios of one round, so that a machine that changes its speed treats both alike. The engines are
xllamacpp and the tests' llama-server where it is here, both on the CPU. Noise is what the engine's defaults
differ from themselves when they are measured twice in a round.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from appliance.engines import Build, discover
from appliance.gguf import read_slim, shape_of
from appliance.hardware import detect
from appliance.operations.machine import memory
from appliance.operations.tuning.knobs import Knobs, engine_defaults, of_plan, with_knobs
from appliance.operations.tuning.measuring import Bench, Speeds, Work, measured
from appliance.paths import Paths
from appliance.planning import PlanRequest, make_plan
from appliance.settings import Engine
from tests import models

BAR = 0.95
"""Of the engine's own speed; below it and below the noise, ours is slower."""
STREAMS, CONTEXT = (1, 4), 2_048
WORK = Work(prompt=512, decode=64, repeats=3, many_repeats=2)
MEASURES = ("prefill", "decode", "many")


async def builds() -> list[Build]:
    """The engines that can be measured, on the CPU."""
    server = models.cache_folder() / "skulk" / "bin" / "llama-server-vulkan"
    found = await discover(Engine(llama_server=str(server) if server.exists() else ""))
    return [build for build in found if build.kind != "llama-cpp-python" and build.usable]


def bench_of(build: Build, model: Path, streams: int, paths: Paths) -> Bench:
    """The plan as it would be served here."""
    header, machine = read_slim(model).header, detect()
    request = PlanRequest(ctx=CONTEXT, parallel=streams, gpu_layers=0)
    host = memory.host(machine, memory.NOTHING, ())
    plan = make_plan(header, build.devices, host, request, model="m", engine_build=build.build)
    return Bench(build, plan, "m", model, shape_of(header).n_vocab, paths)


async def one_round(bench: Bench, order: Sequence[tuple[str, Knobs]]) -> dict[str, Speeds]:
    """The speeds of each, in this order."""
    return {name: await measured(bench, with_knobs(bench.plan, knobs), WORK) for name, knobs in order}


def ratios(rounds: Sequence[dict[str, Speeds]], name: str, measure: str) -> list[float]:
    """Of each round, over the engine's defaults as they were measured first in it."""
    pairs = [(getattr(one[name], measure), getattr(one["engine"], measure)) for one in rounds]
    return [mine / its for mine, its in pairs if mine and its]


async def compare(bench: Bench, rounds: int) -> bool:
    """Prints a line for each measure; True when none of ours is slower."""
    base = engine_defaults(bench.plan)
    order = [("engine", base), ("plan", of_plan(bench.plan)), ("again", base)]
    found = [await one_round(bench, order[::-1] if n % 2 else order) for n in range(rounds)]
    good = True
    for measure in MEASURES:
        ours, same = ratios(found, "plan", measure), ratios(found, "again", measure)
        if not ours:
            continue
        noise = max(abs(value - 1) for value in same)
        middle = statistics.median(ours)
        fine = middle >= min(BAR, 1 - noise)
        speed = statistics.median(getattr(one["plan"], measure) for one in found)
        spread = f"{min(ours):.3f} to {max(ours):.3f}; the same twice within {noise:.3f}"
        slower = "" if fine else "   SLOWER"
        print(f"    {measure:8} {speed:8.1f} tok/s  x{middle:.3f}  ({spread}){slower}", flush=True)
        good = good and fine
    return good


async def everything(paths: Paths, rounds: int) -> bool:
    good = True
    for build in await builds():
        for model in (models.smollm2(), models.gemma3_270m()):
            for streams in STREAMS:
                load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
                print(f"{build.build}, {model.name.split('-')[0]}, {streams} slots{load}", flush=True)
                good = await compare(bench_of(build, model, streams, paths), rounds) and good
    return good


def main() -> int:
    os.environ["GGML_VK_VISIBLE_DEVICES"] = ""  # a device made of the CPU is no GPU
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    with tempfile.TemporaryDirectory(prefix="appl") as folder:
        home = Path(folder)
        paths = Paths(home / "config", home / "data", home / "state", home / "cache", home / "run").make()
        return 0 if asyncio.run(everything(paths, rounds)) else 1


if __name__ == "__main__":
    sys.exit(main())
