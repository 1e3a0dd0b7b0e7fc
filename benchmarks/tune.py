"""Our plan beside the engine started with its own defaults: prefill and decode, one stream and four.

    python -m benchmarks.tune [PAIRS]     # exit code 1 where ours is slower by more than the noise

Three engines run side by side with the same context and slots (`-c`, `-np`): with the engine's own defaults,
by our plan, and with the defaults once more, whose spread against themselves is the noise. They get the same
request in turn. A turn begins when the machine is quiet, and counts when other programs took no more than a
twentieth of the CPU during it. The engines are xllamacpp and the tests' llama-server where it is here, on the
CPU.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import aiohttp
import psutil

from appliance.engines import Build, discover
from appliance.gguf import read_slim, shape_of
from appliance.hardware import detect
from appliance.operations.machine import memory
from appliance.operations.tuning.knobs import engine_defaults, of_plan, with_knobs
from appliance.operations.tuning.measuring import Bench, alone, running, together
from appliance.paths import Paths
from appliance.planning import PlanRequest, make_plan
from appliance.settings import Engine
from tests import models

BAR = 0.97
"""Of the engine's own speed; below it and below the noise, ours is slower."""
STREAMS, CONTEXT = (1, 4), 2_048
PROMPT, DECODE = 384, 32
PAIRS = 7
OTHERS = 0.05
"""Share of the CPU that other programs may take during a turn."""
LOOK_S, PATIENCE_S = 1.0, 600.0
"""How long the machine is looked at before a turn, and how long quiet turns are waited for."""
Turn = dict[str, tuple[float, float]]
"""By engine: prefill and decode of one stream, or the tokens of all streams twice."""
Client = aiohttp.ClientSession


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


class Others:
    """The CPU that other programs take."""

    def __init__(self) -> None:
        self._before = self._now()

    def share(self) -> float:
        """Since the last look."""
        began, busy, ours = self._before
        self._before = now, busy_now, ours_now = self._now()
        spare = (now - began) * (psutil.cpu_count() or 1)
        return max(0.0, (busy_now - busy) - (ours_now - ours)) / spare

    def _now(self) -> tuple[float, float, float]:
        times, ours = psutil.cpu_times(), 0.0
        busy = sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0)
        for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                ours += sum(process.cpu_times()[:2])
        return time.perf_counter(), busy, ours


async def quiet_turns(
    clients: dict[str, Client], ask: Callable[[Client, int], Awaitable[tuple[float, float]]], pairs: int
) -> list[Turn]:
    """Turns that nobody disturbed; fewer than `pairs` where the machine is never quiet for so long."""
    found: list[Turn] = []
    others, end, attempt = Others(), time.monotonic() + PATIENCE_S, 0
    while len(found) < pairs and time.monotonic() < end:
        others.share()
        await asyncio.sleep(LOOK_S)
        if others.share() > OTHERS:
            continue
        attempt += 1
        turn: Turn = {}
        for name in list(clients)[:: 1 if attempt % 2 else -1]:
            turn[name] = await ask(clients[name], attempt)
            if others.share() > OTHERS:
                break
        else:
            found.append(turn)
    return found


def told(what: str, turns: Sequence[Turn], column: int) -> bool:
    """Prints a line; True when ours is not slower."""
    if not turns:
        print(f"    {what:8} the machine was never quiet", flush=True)
        return False
    mine = [turn["plan"][column] / turn["engine"][column] for turn in turns]
    same = [turn["again"][column] / turn["engine"][column] for turn in turns]
    middle, noise = statistics.median(mine), (max(same) - min(same)) / 2
    speed = statistics.median(turn["plan"][column] for turn in turns)
    fine = middle >= min(BAR, 1 - noise)
    spread = f"{min(mine):.3f} to {max(mine):.3f} in {len(turns)} turns"
    twice = f"the same twice {min(same):.3f} to {max(same):.3f}"
    slower = "" if fine else "   SLOWER"
    print(f"    {what:8} {speed:8.1f} tok/s  x{middle:.3f}  ({spread}; {twice}){slower}", flush=True)
    return fine


async def compare(bench: Bench, streams: int, pairs: int) -> bool:
    """Prints a line for each measure; True when none of ours is slower."""
    base = engine_defaults(bench.plan)
    knobs = {"engine": base, "plan": of_plan(bench.plan), "again": base}

    async def one(client: Client, seed: int) -> tuple[float, float]:
        speeds = await alone(client, bench, PROMPT, DECODE, seed)
        return speeds.prefill, speeds.decode

    async def all_slots(client: Client, seed: int) -> tuple[float, float]:
        return (await together(client, bench, streams, DECODE, seed),) * 2

    async with contextlib.AsyncExitStack() as engines:
        clients = {
            name: await engines.enter_async_context(running(bench, with_knobs(bench.plan, each)))
            for name, each in knobs.items()
        }
        for client in clients.values():
            await one(client, 0)  # warms caches up
        if streams > 1:
            return told("all", await quiet_turns(clients, all_slots, pairs), 0)
        turns = await quiet_turns(clients, one, pairs)
        return all([told("prefill", turns, 0), told("decode", turns, 1)])


async def everything(paths: Paths, pairs: int) -> bool:
    good = True
    for build in await builds():
        for model in (models.smollm2(), models.gemma3_270m()):
            for streams in STREAMS:
                load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
                print(f"{build.kind}, {model.name.split('-')[0]}, {streams} streams{load}", flush=True)
                good = await compare(bench_of(build, model, streams, paths), streams, pairs) and good
    return good


def main() -> int:
    os.environ["GGML_VK_VISIBLE_DEVICES"] = ""  # a device made of the CPU is no GPU
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else PAIRS
    with tempfile.TemporaryDirectory(prefix="appl") as folder:
        home = Path(folder)
        paths = Paths(home / "config", home / "data", home / "state", home / "cache", home / "run").make()
        return 0 if asyncio.run(everything(paths, pairs)) else 1


if __name__ == "__main__":
    sys.exit(main())
