"""How long a plan takes: by formula, with the engine asked, and as a command from start to end.

    python -m benchmarks.plan     # exit code 1 above a bar

Bars: 50 ms by formula, 2 s with the engine asked, 0.9 s of CPU for the whole command on a described machine.

By formula, each model is planned for machines where all of it, a part of it or nothing fits on one card or
two: the search takes longest where little fits. The engines are xllamacpp, and the tests' llama-server where
it is here.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from appliance.engines import Build, Choice, discover
from appliance.gguf import Header, read_slim
from appliance.hardware import Machine
from appliance.operations.machine.survey import Survey
from appliance.operations.plans.plan import plan_subject
from appliance.operations.plans.subject import of_file
from appliance.operations.plans.wishes import Wishes, request_for
from appliance.paths import Paths
from appliance.planning import DeviceMemory, HostMemory, PlanRequest, make_plan
from appliance.settings import Engine, Settings
from appliance.units import GIB
from tests import models
from tests.planning.machines import gpu, llama_like, moe_like

FORMULA_BAR_S = 0.050
ASKED_BAR_S = 2.0
DESCRIBED_BAR_S = 0.9
ROUNDS = 5
HOST = HostMemory(64 * GIB, 56 * GIB, 8)
APPLIANCE = Path(sys.executable).parent / "appliance"


def headers() -> dict[str, Header]:
    """Two real ones and shapes of 32 to 94 blocks."""
    return {
        "SmolLM2 135M": read_slim(models.smollm2()).header,
        "Gemma 3 270M": read_slim(models.gemma3_270m()).header,
        "32 blocks (8B)": llama_like(),
        "48 blocks, MoE (30B)": moe_like(),
        "64 blocks (32B)": llama_like(n_layer=64, n_embd=5_120, n_ff=25_600, n_head=64),
        "94 blocks (123B)": llama_like(n_layer=94, n_embd=12_288, n_ff=28_672, n_head=96),
    }


def machines() -> Iterator[tuple[str, tuple[DeviceMemory, ...]]]:
    """No card, one and two, from plenty to next to nothing."""
    yield "no GPU", ()
    for free in (80, 24, 8, 3, 1):
        yield f"{free} GiB", (gpu(free * GIB),)
    for one, two in ((48, 48), (12, 8), (4, 2)):
        yield f"{one} + {two} GiB", (gpu(one * GIB), replace(gpu(two * GIB), name="CUDA1"))


def timed(work: Callable[[], object], rounds: int = ROUNDS) -> list[float]:
    """Wall times."""
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return times


def by_formula() -> float:
    """Prints the slowest machine of each model; the slowest median of all."""
    slowest = 0.0
    for name, header in headers().items():
        found = []
        for where, devices in machines():
            times = timed(
                lambda devices=devices, header=header: make_plan(  # type: ignore[misc]
                    header, devices, HOST, PlanRequest(), model="m", engine_build=None
                )
            )
            found.append((statistics.median(times), where, times))
        median, where, times = max(found)
        usual = statistics.median(pair[0] for pair in found)
        print(f"{name:24} {usual * 1e3:7.1f} ms usual {median * 1e3:7.1f} ms at most, with {where} "
              f"({min(times) * 1e3:.1f} to {max(times) * 1e3:.1f})")  # fmt: skip
        slowest = max(slowest, median)
    return slowest


def looked(build: Build) -> Survey:
    """A quiet machine with this engine alone; what it offers is its own."""
    machine = Machine((), 64 * GIB, 56 * GIB, os.cpu_count(), os.cpu_count(), None, None, ())
    return Survey(machine, (build,), Choice(build, "the only one"), None)


async def asked(build: Build, path: Path, paths: Paths, layers: int | None) -> tuple[float, bool]:
    """Header, plan, measurements: the time, and whether the plan was measured."""
    began = time.perf_counter()
    subject = await asyncio.to_thread(of_file, path)
    request = request_for(Settings(), Wishes(gpu_layers=layers))
    plan = await plan_subject(subject, looked=looked(build), request=request, paths=paths)
    return time.perf_counter() - began, plan.measured


async def builds() -> list[Build]:
    """The engines that can be asked."""
    server = models.cache_folder() / "skulk" / "bin" / "llama-server-vulkan"
    found = await discover(Engine(llama_server=str(server) if server.exists() else ""))
    return [build for build in found if build.kind != "llama-cpp-python" and build.usable]


async def by_the_engine(paths: Paths) -> float:
    """Prints the figures of each engine and model; the slowest median."""
    slowest = 0.0
    for build in await builds():
        for path in (models.smollm2(), models.gemma3_270m()):
            for layers in (None, 99) if build.devices else (None,):
                runs = [await asked(build, path, paths, layers) for _ in range(ROUNDS)]
                times = [seconds for seconds, _ in runs]
                where = "in RAM" if layers is None else f"on {build.devices[0].name}"
                show(f"{build.kind}, {path.name.split('-')[0]} {where}", times)
                if not all(measured for _, measured in runs):
                    print("    not measured")
                slowest = max(slowest, statistics.median(times))
    return slowest


def command(folder: Path, *options: str) -> tuple[list[float], list[float]]:
    """`appliance plan FILE` in a fresh home, hardware and engines looked at anew: wall and CPU times.

    Its bytecode is kept in that home, as an installation keeps it; the first run, which makes it, does not
    count.
    """
    env = {k: v for k, v in os.environ.items() if not k.startswith("APPLIANCE_")} | {
        "APPLIANCE_HOME": str(folder),
        "PYTHONPYCACHEPREFIX": str(folder / "bytecode"),
    }
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    argv: Sequence[str] = (str(APPLIANCE), "plan", str(models.gemma3_270m()), *options)

    def run() -> None:
        subprocess.run(argv, env=env, stdout=subprocess.DEVNULL, check=False)

    run()
    used = [_cpu_s()]

    def counted() -> None:
        run()
        used.append(_cpu_s())

    return timed(counted), [after - before for before, after in itertools.pairwise(used)]


def _cpu_s() -> float:
    """Of all processes that were waited for."""
    times = os.times()
    return times.children_user + times.children_system


def show(name: str, times: list[float]) -> None:
    print(f"{name:44} {statistics.median(times):7.2f} s  ({min(times):.2f} to {max(times):.2f})")


def main() -> int:
    os.environ.setdefault("GGML_VK_VISIBLE_DEVICES", "0")
    formula = by_formula()
    print(f"{'bar':24} {FORMULA_BAR_S * 1e3:7.1f} ms")
    with tempfile.TemporaryDirectory(prefix="appl") as folder:
        home = Path(folder)
        paths = Paths(home / "config", home / "data", home / "state", home / "cache", home / "run").make()
        engine = asyncio.run(by_the_engine(paths))
        print(f"{'bar':44} {ASKED_BAR_S:7.2f} s")
        described = ("--gpu", "8GiB,RTX 4060", "--ram", "16GiB")
        usual = 0.0
        for name, options in (("asked", ()), ("described machine", described), ("--help", ("--help",))):
            wall, used = command(home, *options)
            show(f"appliance plan, {name}", wall)
            show("    CPU, child processes included", used)
            usual = statistics.median(used) if options is described else usual
        print(f"{'bar of a described machine, CPU':44} {DESCRIBED_BAR_S:7.2f} s")
    good = formula <= FORMULA_BAR_S and engine <= ASKED_BAR_S and usual <= DESCRIBED_BAR_S
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
