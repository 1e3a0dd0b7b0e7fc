"""What becomes of the sensors, as events of the journal: lost GPUs, silence, restarts, calls left out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import cast

from appliance.hardware import troubles
from appliance.hardware.types import TroubleState
from appliance.journal.timeline import GPU
from appliance.monitor import GpuView, MonitorSnapshot

Note = Callable[[str, str | None, str, str | None], None]
KIND = "sensors"
RESTARTS_EVERY_S = 60.0
"""A child that ends again and again is one event in so long."""
Told = tuple[str | None, str, str | None]
"""Device, sentence and detail of one event."""


class SensorEvents:
    """The monitor's listener: each snapshot beside the last. `note` takes kind, device, text, detail."""

    def __init__(self, note: Note, clock: Callable[[], float] = time.monotonic) -> None:
        self._note, self._clock = note, clock
        self._before = MonitorSnapshot()
        self._restarts = 0
        """Those that an event has told."""
        self._restart_at = float("-inf")

    def sampled(self, seen: MonitorSnapshot) -> None:
        """Take the machine as it is now."""
        found = [*_gpus(self._before, seen), *_silence(self._before, seen), *_skipped(self._before, seen)]
        for ref, text, detail in (*found, *self._restarted(seen)):
            self._note(KIND, ref, text, detail)
        self._before = seen

    def _restarted(self, seen: MonitorSnapshot) -> Iterator[Told]:
        more = seen.restarts - self._restarts
        if more <= 0 or self._clock() - self._restart_at < RESTARTS_EVERY_S:
            return
        self._restarts, self._restart_at = seen.restarts, self._clock()
        times = "" if more == 1 else f" {more} times"
        yield None, f"The sensor process ended or hung and was started again{times}.", seen.message


def _gpus(before: MonitorSnapshot, now: MonitorSnapshot) -> Iterator[Told]:
    known = {gpu.id: gpu for gpu in before.gpus}
    for gpu in now.gpus:
        was = known.get(gpu.id)
        if was is None or was.trouble == gpu.trouble or not gpu.watched:
            continue
        yield _trouble(gpu) if gpu.trouble else (f"{GPU}{gpu.id}", f"{gpu.name} can be read again.", None)


def _trouble(gpu: GpuView) -> Told:
    found = troubles.trouble(cast("TroubleState", gpu.trouble))
    return f"{GPU}{gpu.id}", f"{gpu.name} can't be read: {found.message}", found.fix


def _silence(before: MonitorSnapshot, now: MonitorSnapshot) -> Iterator[Told]:
    if now.stale and not before.stale:
        yield None, "The sensors are silent; the last values are shown with their age.", now.message
    if before.stale and not now.stale and now.active:
        yield None, "The sensors answer again.", None


def _skipped(before: MonitorSnapshot, now: MonitorSnapshot) -> Iterator[Told]:
    if not now.active:
        return
    for call in sorted(set(now.skipped) - set(before.skipped)):
        yield None, f"{call} hung or crashed twice and is left out for now.", "Update the GPU's driver."
    if now.age_s is not None and not now.stale:
        for call in sorted(set(before.skipped) - set(now.skipped)):
            yield None, f"{call} is tried again.", None
