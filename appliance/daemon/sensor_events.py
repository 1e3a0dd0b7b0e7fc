"""What becomes of the sensors, as events of the journal: lost GPUs, silence, restarts, calls left out."""

from __future__ import annotations

import time
from collections import deque
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
MOST, MOST_PER_S = 4, 60.0
"""One thing is told so often in so long; later it is told as it is then."""
_MOST_THINGS = 128
_DRIVER, _SILENT, _CALL = "driver", "silent", "call "
Told = tuple[str | None, str, str | None]
"""Device, sentence and detail of one event."""
_Found = tuple[str, str | None, Told]
"""A thing, what is wrong with it (None: nothing), and how to say so."""


class SensorEvents:
    """The monitor's listener: each snapshot beside what was told. `note` takes kind, device, text, detail."""

    def __init__(self, note: Note, clock: Callable[[], float] = time.monotonic) -> None:
        self._note, self._clock = note, clock
        self._wrong: dict[str, str] = {}
        """What was told and is not over yet."""
        self._times: dict[str, deque[float]] = {}
        self._silent_s = float("inf")
        """Age of the values while the sensors were silent: only younger ones are an answer."""
        self._restarts = 0
        """Those that an event has told."""
        self._restart_at = float("-inf")

    def sampled(self, seen: MonitorSnapshot) -> None:
        """Take the machine as it is now."""
        for thing, wrong, told in self._found(seen):
            if wrong != self._wrong.get(thing) and self._may_tell(thing):
                self._keep(thing, wrong)
                self._note(KIND, *told)
        for told in self._restarted(seen):
            self._note(KIND, *told)

    def _found(self, seen: MonitorSnapshot) -> Iterator[_Found]:
        """What can be said now. Of what nobody looks at nothing can: neither that it is lost nor back."""
        if not seen.active:
            self._wrong.pop(_SILENT, None)
            return
        yield from self._silence(seen)
        if seen.stale or seen.age_s is None:
            return
        for gpu in seen.gpus:
            if gpu.watched and not gpu.asleep:
                yield f"{GPU}{gpu.id}", gpu.trouble, _trouble(gpu)
        left_out = {_CALL + call for call in seen.skipped}
        if not left_out and not any(gpu.trouble for gpu in seen.gpus):
            yield _DRIVER, seen.message, (None, *_driver(seen.message))
        for thing in sorted(left_out | {thing for thing in self._wrong if thing.startswith(_CALL)}):
            yield thing, "left out" if thing in left_out else None, _call(thing, thing in left_out)

    def _silence(self, seen: MonitorSnapshot) -> Iterator[_Found]:
        age_s = seen.age_s if seen.age_s is not None else float("inf")
        if seen.stale:
            self._silent_s = age_s
            shown = "the last values are shown with their age"
            text = f"The sensors are silent; {'no value is known yet' if seen.age_s is None else shown}."
            yield _SILENT, _SILENT, (None, text, seen.message)
        elif age_s < self._silent_s:  # at another pace they count as silent only later
            yield _SILENT, None, (None, "The sensors answer again.", None)

    def _restarted(self, seen: MonitorSnapshot) -> Iterator[Told]:
        more = seen.restarts - self._restarts
        if more <= 0 or self._clock() - self._restart_at < RESTARTS_EVERY_S:
            return
        self._restarts, self._restart_at = seen.restarts, self._clock()
        times = "" if more == 1 else f" {more} times"
        yield None, f"The sensor process ended or hung and was started again{times}.", seen.message

    def _may_tell(self, thing: str) -> bool:
        now = self._clock()
        if thing not in self._times and len(self._times) >= _MOST_THINGS:
            old = [key for key, times in self._times.items() if now - times[-1] >= MOST_PER_S]
            for key in old:
                del self._times[key]
            if not old:
                return False
        times = self._times.setdefault(thing, deque(maxlen=MOST))
        if len(times) == MOST and now - times[0] < MOST_PER_S:
            return False
        times.append(now)
        return True

    def _keep(self, thing: str, wrong: str | None) -> None:
        self._wrong.pop(thing, None)
        if wrong is not None:
            while len(self._wrong) >= _MOST_THINGS:
                del self._wrong[next(iter(self._wrong))]
            self._wrong[thing] = wrong


def _trouble(gpu: GpuView) -> Told:
    if gpu.trouble is None:
        return f"{GPU}{gpu.id}", f"{gpu.name} can be read again.", None
    found = troubles.trouble(cast("TroubleState", gpu.trouble))
    return f"{GPU}{gpu.id}", f"{gpu.name} can't be read: {found.message}", found.fix


def _driver(message: str | None) -> tuple[str, str | None]:
    """Of all GPUs at once, when none has a name yet."""
    return ("GPUs can be read again.", None) if message is None else ("GPUs can't be read.", message)


def _call(thing: str, left_out: bool) -> Told:
    call = thing.removeprefix(_CALL)
    if left_out:
        return None, f"{call} hung or crashed twice and is left out for now.", "Update the GPU's driver."
    return None, f"{call} is tried again.", None
