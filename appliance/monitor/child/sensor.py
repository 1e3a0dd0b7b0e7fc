"""`python -m appliance.monitor.child`: print one JSON line per sample. The child process of `Monitor`.

It is a process of its own because a vendor's library may hang or crash. Lines on stdin steer it:

    interval SECONDS    time between samples
    mode full|host      `host` lets go of every GPU and reads only CPU, RAM and battery
    processes           ask for the GPU's processes with the next sample

It ends when stdin closes, and so dies with its parent however that dies, even while a driver call hangs; on
Linux the kernel kills it, too.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import TextIO

from appliance.hardware import cgroup, host
from appliance.hardware.sensors import GpuSample, Sample
from appliance.hardware.sysfs import Roots
from appliance.hardware.types import Battery
from appliance.monitor.child.amd_reader import AmdReader
from appliance.monitor.child.readers import NvidiaReader
from appliance.monitor.wire import to_line

_PR_SET_PDEATHSIG = 1
_SLOW_S = 10.0
"""How often battery and container limits are read: they change slowly, and a battery may take long to
answer.
"""


class Sensor:
    """Takes samples. Owned by the main thread of the child."""

    def __init__(self, roots: Roots = Roots(), clock: Callable[[], float] = time.monotonic) -> None:  # noqa: B008
        self._roots = roots
        self._clock = clock
        self._nvidia = NvidiaReader(roots, clock)
        self._amd = AmdReader(roots, clock)
        self._cpu = host.CpuLoad()
        self._limits = cgroup.Limits()
        self._battery: Battery | None = None
        self._slow_at = float("-inf")
        self.interval_s = 1.0
        self.full = True

    def command(self, line: str) -> None:
        """Obey one line of stdin; what is not understood is passed over."""
        word, _, value = line.strip().partition(" ")
        if word == "interval":
            with contextlib.suppress(ValueError):
                self.interval_s = min(60.0, max(0.02, float(value)))
        elif word == "mode":
            self.full = value == "full"
            if not self.full:
                self._nvidia.close()
        elif word == "processes":
            self._nvidia.refresh_processes()

    def sample(self) -> Sample:
        """Look at everything once."""
        if self._clock() - self._slow_at >= _SLOW_S:
            self._slow_at = self._clock()
            self._limits = cgroup.read(self._roots)
            self._battery = host.battery()
        ram = host.ram(self._limits)
        gpus: list[GpuSample] = [*self._nvidia.read(), *self._amd.read()] if self.full else []
        return Sample(
            gpus=tuple(gpus),
            cpu_percent=self._cpu.percent(),
            ram_total=ram.total,
            ram_available=ram.available,
            battery=self._battery,
            trouble=self._nvidia.trouble if self.full else None,
        )


def run(sensor: Sensor, commands: queue.Queue[str], out: TextIO) -> None:
    """Sample for ever, at a steady pace; a command acts at once. Ends when `out` is gone."""
    due = time.monotonic()
    while True:
        try:
            sensor.command(commands.get(timeout=max(0.0, due - time.monotonic())))
            due = min(due, time.monotonic() + sensor.interval_s)
            continue
        except queue.Empty:
            pass
        try:
            out.write(to_line(sensor.sample()) + "\n")
            out.flush()
        except (BrokenPipeError, ValueError):
            return
        due = max(due + sensor.interval_s, time.monotonic())


def main() -> None:
    """Set up the child and run it."""
    parent = os.getppid()
    _die_with_parent()
    if os.getppid() != parent:  # it died before the kernel knew our wish
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the daemon, which ends us in its own order
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a native library prints must not land between the samples
    commands: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_listen, args=(commands,), daemon=True).start()
    run(Sensor(), commands, out)


def _listen(commands: queue.Queue[str]) -> None:
    """Hand over stdin's lines; at its end leave at once, even when the main thread hangs in a driver."""
    for line in sys.stdin:
        commands.put(line)
    os._exit(0)


def _die_with_parent() -> None:
    if sys.platform.startswith("linux"):
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
