"""`python -m appliance.monitor.child`: print one JSON line per sample. The child process of `Monitor`.

It is a process of its own because a vendor's library may hang or crash. Lines on stdin steer it:

    interval SECONDS    time between samples
    mode full|host      `host` lets go of every GPU and reads only CPU, RAM and battery
    processes           ask for the GPU's processes with the next sample

It ends when stdin closes, and so dies with its parent however that dies, even while a driver call hangs; on
Linux the kernel kills it, too. It ends itself when one call outlives its deadline (`watchdog.py`). Its
argument is a JSON object: see `Orders`.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import json
import logging
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TextIO, TypeVar

from appliance.hardware import cgroup, host, nvml
from appliance.hardware.sensors import CpuSample, GpuSample, Sample, zones
from appliance.hardware.sysfs import Roots
from appliance.hardware.types import Battery
from appliance.monitor.child.amd_reader import AmdReader
from appliance.monitor.child.apple_reader import AppleReader
from appliance.monitor.child.cpu_reader import CpuReader
from appliance.monitor.child.nvidia_reader import NvidiaReader
from appliance.monitor.child.watchdog import Trace, Watchdog
from appliance.monitor.wire import to_line

log = logging.getLogger("appliance.monitor")

T = TypeVar("T")

_PR_SET_PDEATHSIG = 1
_SLOW_S = 10.0
"""How often battery and container limits are read: they change slowly, and a battery may take long to
answer.
"""


@dataclass(frozen=True, slots=True)
class Orders:
    """What the parent says at the start."""

    trace: str | None = None
    """The file for the name of the call that runs."""
    deadline_s: float = 3.0
    """For one call."""
    slow_s: float = 15.0
    """For those that begin with a device or end with it."""
    skip: Mapping[str, float] = field(default_factory=dict)
    """Calls to leave out, and for how many seconds."""

    @classmethod
    def of(cls, argv: list[str]) -> Orders:
        """From the arguments; the usual ones without any."""
        return cls(**json.loads(argv[1])) if len(argv) > 1 else cls()


class Sensor:
    """Takes samples. Owned by the main thread of the child."""

    def __init__(
        self,
        roots: Roots = Roots(),  # noqa: B008  (frozen)
        clock: Callable[[], float] = time.monotonic,
        watchdog: Watchdog | None = None,
    ) -> None:
        self._roots = roots
        self._clock = clock
        self._watchdog = watchdog or Watchdog(Trace(None), deadline_s=3.0, slow_s=15.0, clock=clock)
        self._nvidia = NvidiaReader(roots, clock, self._shared_ram)
        self._amd = AmdReader(roots, clock)
        self._apple = AppleReader(clock)
        self._package = CpuReader(roots, clock)
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
            self._limits = self._look("container limits", lambda: cgroup.read(self._roots), self._limits)
            self._battery = self._look("battery", lambda: host.battery(self._roots), None)
        ram, swap = host.ram(self._limits), host.swap(self._limits, self._roots)
        none: CpuSample | None = None
        return Sample(
            gpus=self._gpus() if self.full else (),
            cpu=self._look("CPU", self._package.read, none),
            cpu_percent=self._cpu.percent(),
            ram_total=ram.total,
            ram_available=ram.available,
            swap_total=swap.total,
            swap_used=swap.used,
            battery=self._battery,
            trouble=self._nvidia.trouble if self.full else None,
            skipped=self._watchdog.skipped(),
        )

    def _shared_ram(self) -> tuple[int | None, int | None]:
        """What a GPU has that shares the RAM and tells no memory of its own (GB10)."""
        ram = host.ram(self._limits)
        return ram.total, ram.available

    def _gpus(self) -> tuple[GpuSample, ...]:
        nothing: list[GpuSample] = []
        nvidia = self._caught("NVIDIA", self._nvidia.read, nothing)  # each of its calls is watched by itself
        if any(row.memory_source == "ram" for row in nvidia):
            nvidia = self._look("thermal zones", lambda: zones.completed(nvidia, self._roots), nvidia)
        amd = self._look("AMD", self._amd.read, nothing)
        return (*nvidia, *amd, *self._look("Apple", self._apple.read, nothing))

    def _look(self, what: str, look: Callable[[], T], otherwise: T) -> T:
        """One look under the watchdog's eye; what hung before is left out for some time."""
        if not self._watchdog.allows(what):
            return otherwise
        self._watchdog.began(what)
        try:
            return self._caught(what, look, otherwise)
        finally:
            self._watchdog.ended()

    def _caught(self, what: str, look: Callable[[], T], otherwise: T) -> T:
        """One bad sensor costs no other: what it raises is told to the log."""
        try:
            return look()
        except Exception:
            log.exception("%s can't be read", what)
            return otherwise


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
    faulthandler.enable()  # where a native crash happened goes to the parent's log
    orders = Orders.of(sys.argv)
    watchdog = Watchdog(
        Trace(orders.trace), deadline_s=orders.deadline_s, slow_s=orders.slow_s, skip=orders.skip
    )
    nvml.guard_with(watchdog)
    watchdog.watch(out.fileno())
    commands: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_listen, args=(commands,), daemon=True).start()
    run(Sensor(watchdog=watchdog), commands, out)


def _listen(commands: queue.Queue[str]) -> None:
    """Hand over stdin's lines; at its end leave at once, even when the main thread hangs in a driver."""
    for line in sys.stdin:
        commands.put(line)
    os._exit(0)


def _die_with_parent() -> None:
    if sys.platform.startswith("linux"):
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
