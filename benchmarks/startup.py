"""How long a person or a script waits: `--version`, `status --json`, and a warm `up` until its ready line.

    make bench            # prints medians, spread, and ratios to a bare Python start in the same run

Seconds depend on the machine; the ratio to `python -c pass`, measured in turn, travels better.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

MODEL = "smollm2-135m-instruct"
APPLIANCE = (os.path.join(os.path.dirname(sys.executable), "appliance"),)
REPEATS = 11
READY_REPEATS = 3


def seconds(command: Sequence[str], env: dict[str, str]) -> float:
    """Wall time of one run."""
    began = time.perf_counter()
    subprocess.run(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return time.perf_counter() - began


def in_turn(commands: dict[str, Sequence[str]], env: dict[str, str]) -> dict[str, list[float]]:
    """Each command once per round, so that a busy moment hits all of them alike."""
    found: dict[str, list[float]] = {name: [] for name in commands}
    for command in commands.values():
        seconds(command, env)  # warm the page cache
    for _ in range(REPEATS):
        for name, command in commands.items():
            found[name].append(seconds(command, env))
    return found


def start(env: dict[str, str]) -> tuple[subprocess.Popen[str], float]:
    """`up` until its ready line."""
    began = time.perf_counter()
    up = subprocess.Popen(
        [*APPLIANCE, "up", MODEL, "--json", "--port", "0"], env=env,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert up.stdout is not None
    assert "url" in json.loads(up.stdout.readline())
    return up, time.perf_counter() - began


def stop(up: subprocess.Popen[str]) -> None:
    up.send_signal(signal.SIGINT)
    up.wait(30)


def show(name: str, values: list[float], base: float | None) -> None:
    middle = statistics.median(values)
    ratio = "" if base is None else f"   x{middle / base:.1f} of a bare Python start"
    print(f"{name:34} {middle:7.3f} s   ({min(values):.3f} to {max(values):.3f}){ratio}")


def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        env = {**os.environ, "APPLIANCE_HOME": home}
        up, cold = start(env)
        stop(up)
        ready = []
        for _ in range(READY_REPEATS):
            up, took = start(env)
            ready.append(took)
            stop(up)
        up, _ = start(env)
        try:
            found = in_turn(
                {
                    "python -c pass": (sys.executable, "-c", "pass"),
                    "appliance --version": (*APPLIANCE, "--version"),
                    "appliance status --json": (*APPLIANCE, "status", "--json"),
                },
                env,
            )
        finally:
            stop(up)
    base = statistics.median(found["python -c pass"])
    for name, values in found.items():
        show(name, values, base)
    show("up: first start, model fetched", [cold], None)
    show("up: warm start to the ready line", ready, None)


if __name__ == "__main__":
    main()
