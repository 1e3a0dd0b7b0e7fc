"""What the appliance costs while one model is loaded and nobody asks: daemon and sensor child, no engine.

    python -m benchmarks.idle [SECONDS]   # exit code 1 over 1 % of a core or 120 MiB

Twice: a real engine on the CPU, and the scripted one with the tests' NVML stub as its GPU, whose sensors are
read every five seconds. CPU time over wall time, so another program beside it changes little.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from tests import nvml_stub
from tests.engines.fake_engine import Script, install

APPLIANCE = os.path.join(os.path.dirname(sys.executable), "appliance")
MODEL = "smollm2-135m-instruct"
CARD = "CUDA0: Fake RTX 9000 Laptop GPU (8192 MiB, 7000 MiB free)"
MOST_CPU, MOST_MIB = 0.01, 120
SETTLE_S = 15.0
"""The first load, the first looks and the imports that they bring are not idleness."""


def watched(daemon: psutil.Process) -> list[psutil.Process]:
    """The daemon and its sensor child."""
    return [
        daemon,
        *(one for one in daemon.children() if "appliance.monitor.child" in " ".join(one.cmdline())),
    ]


def cpu_s(processes: list[psutil.Process]) -> float:
    return sum(sum(one.cpu_times()[:2]) for one in processes)


def measure(name: str, env: dict[str, str], seconds: float, *arguments: str) -> bool:
    """One appliance; whether it stays within the limits."""
    up = subprocess.Popen(
        [APPLIANCE, "up", MODEL, "--json", "--port", "0", *arguments], env=env,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert up.stdout is not None
        daemon = psutil.Process(json.loads(up.stdout.readline())["pid"])
        time.sleep(SETTLE_S)
        processes = watched(daemon)
        before, began = cpu_s(processes), time.perf_counter()
        time.sleep(seconds)
        share = (cpu_s(processes) - before) / (time.perf_counter() - began)
        mib = [one.memory_info().rss / 2**20 for one in processes]
    finally:
        up.send_signal(signal.SIGINT)
        up.wait(30)
    each = ", ".join(f"{one:.0f}" for one in mib)
    print(f"{name}: {share:.2%} of a core, {sum(mib):.0f} MiB resident ({each})")
    return share < MOST_CPU and sum(mib) < MOST_MIB and len(mib) == 2


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        env = {**os.environ, "APPLIANCE_HOME": str(home / "a")}
        well = [measure("real engine on the CPU", env, seconds)]
        state = home / "gpu"
        nvml_stub.write_state(state)
        stub = nvml_stub.environment(nvml_stub.build(home), state)
        loaded = Script(load_lines=("load_tensors: offloaded 31/31 layers to GPU",))
        engine = install(home / "engine", loaded, devices=[CARD])
        stub |= {"APPLIANCE_HOME": str(home / "a"), "APPLIANCE_ENGINE__LLAMA_SERVER": str(engine.path)}
        well.append(measure("scripted engine on the NVML stub", stub, seconds, "--engine", "llama-server"))
    sys.exit(0 if all(well) else 1)


if __name__ == "__main__":
    main()
