"""What loads taught: `learned.json`, so that the next plan is nearer to what the engine really takes.

Kept are, by model hash, engine build and device: real over computed compute buffers, what the driver takes
beside them, memory bandwidths, the engine's own measurements of a plan, and plans that ran out of memory.
No name of a file or of a request is in it. Everything here reads or writes a small file: call it in a thread.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from appliance.engines.failures import UNKNOWN_PLACE
from appliance.operations.lessons import learned_file
from appliance.operations.lessons.learned_file import (
    DeviceLesson,
    Learnt,
    Measured,
    ModelLesson,
    PlaceLesson,
    RanOut,
)
from appliance.operations.lessons.read_back import Seen, seen_of
from appliance.planning import Learned, MeasuredRow, MemoryPlan, Plan

log = logging.getLogger("appliance.learning")

_DAY_S = 86_400.0
FORGOTTEN_AFTER_S = _DAY_S
"""A plan that ran out of memory may be tried again after this: drivers and neighbours change."""
MEASURED_FOR_S = 30 * _DAY_S
_RATIO = (0.5, 4.0)
_BANDWIDTH = (100e6, 20e12)
"""Bytes per second; no memory is slower or faster, so other figures are misreadings."""
_OVERHEAD = 4 << 30
"""Bytes; more is no driver but a misreading."""
_SLOW = 0.3
"""Share of a lower figure that is taken over: too much costs some room, too little a failed load."""
_MORE_FREE = 1.05
"""Free memory has grown by this before a plan that ran out is tried again."""


@dataclass(frozen=True, slots=True)
class Before:
    """A plan no larger than the one that is asked about ran out of memory here."""

    where: str
    """The place, or `unknown`."""
    at: float
    """Unix time."""

    @property
    def until(self) -> float:
        """Unix time from which on it is tried again anyway."""
        return self.at + FORGOTTEN_AFTER_S


class Lessons:
    """The lessons of this user. Any number of processes may have one over the same file."""

    def __init__(self, file: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._file = file
        self._clock = clock

    # -- for the next plan ---------------------------------------------------------------------------

    def of(self, model_sha256: str | None, build: str) -> Mapping[str, Learned]:
        """What is known by place: devices by the engine's names, and `Host`, whose `full` is that of a run
        without devices.

        Of a model that was never loaded with this build, only what the driver takes, as other models showed.
        """
        known = learned_file.read(self._file)
        everyone = known.builds.get(build, {})
        model = known.models.get(_key(model_sha256, build)) if model_sha256 else None
        mine = model.devices if model is not None else {}
        found = {}
        for name in {*everyone, *mine}:
            one = mine.get(name, DeviceLesson())
            general = everyone[name].overhead if name in everyone else None
            overhead = one.overhead if one.overhead is not None else general
            lesson = Learned(one.full, one.partial, overhead)
            if lesson != Learned():
                found[name] = lesson
        return found

    def bandwidth(self, build: str, place: str) -> float | None:
        """Bytes per second that weights were read with at this place; None: never seen."""
        return self.bandwidths(build).get(place)

    def bandwidths(self, build: str) -> Mapping[str, float]:
        """All of a build's that were seen, by place."""
        places = learned_file.read(self._file).builds.get(build, {})
        seen = {name: lesson.bandwidth for name, lesson in places.items() if lesson.bandwidth is not None}
        return {name: speed for name, speed in seen.items() if _possible(speed)}

    def measured(
        self, model_sha256: str | None, build: str, flags: Sequence[str]
    ) -> Mapping[str, MeasuredRow] | None:
        """The engine's own table for this very plan, when it was asked before. Needs no engine."""
        found = learned_file.read(self._file).measured.get(_key(model_sha256, build, flags))
        if model_sha256 is None or found is None or self._clock() - found.at > MEASURED_FOR_S:
            return None
        return {name: MeasuredRow(*row) for name, row in found.rows.items()}

    def ran_out(
        self, model_sha256: str | None, build: str, plan: Plan, *, path: str | None = None
    ) -> Before | None:
        """Where and when a plan at least as small as `plan` ran out of memory here, with no less free.

        `path` is the engine's file. None: never, or too long ago, or there is more free now.
        """
        if model_sha256 is None:
            return None
        now, known, engine = self._clock(), learned_file.read(self._file), _engine(path)
        found = [
            Before(one.where, one.at)
            for one in known.ran_out.values()
            if (one.model, one.build, one.engine) == (model_sha256, build, engine)
            and 0 <= now - one.at <= FORGOTTEN_AFTER_S
            and _at_least_as_large(plan, one)
        ]
        return max(found, key=lambda one: one.at, default=None)

    # -- after a load --------------------------------------------------------------------------------

    def note_load(
        self,
        model_sha256: str | None,
        build: str,
        plan: Plan,
        buffers: Mapping[str, Mapping[str, float]],
        driver_used: Mapping[str, int] | None = None,
        *,
        path: str | None = None,
    ) -> None:
        """Compare a load that worked with its plan.

        `buffers` are MiB by buffer and purpose as the log says; `driver_used` bytes by device that the driver
        reports for the engine's process, where it tells; `path` is the engine's file. A device whose weights
        are not where the plan put them teaches nothing.
        """
        if model_sha256 is None:
            return
        seen, engine = seen_of(plan, buffers, driver_used or {}), _engine(path)

        def change(known: Learnt) -> None:
            self._take(known, model_sha256, build, plan, seen)
            for key, one in list(known.ran_out.items()):
                same = (one.model, one.build, one.engine) == (model_sha256, build, engine)
                if same and _at_least_as_large(plan, one):
                    del known.ran_out[key]

        self._change(change)

    def note_bandwidth(self, build: str, place: str, bytes_per_s: float) -> None:
        """A speed that was seen here, smoothed."""
        if not _possible(bytes_per_s):
            return

        def change(known: Learnt) -> None:
            lesson = known.builds.setdefault(build, {}).setdefault(place, PlaceLesson())
            old = lesson.bandwidth
            new = old is None or not _possible(old)
            lesson.bandwidth = bytes_per_s if new else _SLOW * bytes_per_s + (1 - _SLOW) * (old or 0.0)
            lesson.at = self._clock()

        self._change(change)

    def note_measured(
        self, model_sha256: str | None, build: str, flags: Sequence[str], rows: Mapping[str, MeasuredRow]
    ) -> None:
        """Keep the engine's own table for a plan."""
        if model_sha256 is None:
            return
        kept = {name: (row.model, row.context, row.compute) for name, row in rows.items()}
        entry = Measured(rows=kept, at=self._clock())
        self._change(lambda known: known.measured.update({_key(model_sha256, build, flags): entry}))

    def note_ran_out(
        self, model_sha256: str | None, build: str, plan: Plan, where: str, *, path: str | None = None
    ) -> None:
        """Remember that this plan ran out of memory, so that the next load does not try it again.

        `where` as the engine's failure tells it; a place that the plan does not use counts as unknown.
        """
        if model_sha256 is None:
            return
        where = where if _place(plan, where) is not None else UNKNOWN_PLACE
        needed, free = _place(plan, where) or (0, None)
        entry = RanOut(
            model=model_sha256, build=build, engine=_engine(path), where=where, needed=needed, free=free,
            at=self._clock(),
        )  # fmt: skip
        key = _key(model_sha256, build, (*plan.flags, entry.engine))
        self._change(lambda known: known.ran_out.update({key: entry}))

    def forget_ran_out(self, model_sha256: str | None) -> None:
        """A person wants what ran out of memory with this model to be tried again."""

        def change(known: Learnt) -> None:
            for key in [key for key, one in known.ran_out.items() if one.model == model_sha256]:
                del known.ran_out[key]

        self._change(change)

    # -- inside --------------------------------------------------------------------------------------

    def _take(
        self, known: Learnt, model_sha256: str, build: str, plan: Plan, seen: Mapping[str, Seen]
    ) -> None:
        now = self._clock()
        model = known.models.setdefault(_key(model_sha256, build), ModelLesson())
        everyone = known.builds.setdefault(build, {})
        model.at = now
        for name, one in seen.items():
            lesson = model.devices.setdefault(name, DeviceLesson())
            general = everyone.setdefault(name, PlaceLesson())
            if general.total != one.total:  # another card has this name now
                lesson.overhead = general.overhead = general.bandwidth = None
            general.total, general.at = one.total, now
            if one.overhead is not None:
                overhead = min(one.overhead, _OVERHEAD)
                lesson.overhead = int(_careful(lesson.overhead, overhead))
                general.overhead = int(_careful(general.overhead, overhead))
            if one.ratio is not None:
                ratio = min(max(one.ratio, _RATIO[0]), _RATIO[1])
                if one.full:
                    lesson.full = _careful(lesson.full, ratio)
                else:
                    lesson.partial = _careful(lesson.partial, ratio)

    def _change(self, change: Callable[[Learnt], None]) -> None:
        try:
            learned_file.change(self._file, change)
        except OSError as error:
            log.warning("what was learned can't be kept: %s", error.strerror or type(error).__name__)


def _careful(old: float | None, new: float) -> float:
    """Up at once, down by and by."""
    return new if old is None or new >= old else old + _SLOW * (new - old)


def _at_least_as_large(plan: Plan, one: RanOut) -> bool:
    place = _place(plan, one.where)
    if place is None or place[0] < one.needed:
        return False
    free = place[1]
    return one.free is None or free is None or free <= one.free * _MORE_FREE


def _place(plan: Plan, where: str) -> tuple[int, int | None] | None:
    """Bytes that a plan takes there, and that are free there. Where it is unknown: on all of its devices, in
    RAM when it uses none. None: it is no place of the plan's.
    """
    places: tuple[MemoryPlan, ...] = plan.devices or (plan.host,)
    if where != UNKNOWN_PLACE:
        places = tuple(one for one in (*plan.devices, plan.host) if one.name == where)
    if not places:
        return None
    free = [one.free for one in places if one.free is not None]
    return sum(one.needed for one in places), sum(free) if len(free) == len(places) else None


def _possible(bytes_per_s: float) -> bool:
    return _BANDWIDTH[0] <= bytes_per_s <= _BANDWIDTH[1]


def _engine(path: str | None) -> str:
    """An engine's file in short, without its name."""
    return "" if path is None else hashlib.sha256(path.encode(errors="replace")).hexdigest()[:16]


def _key(model_sha256: str | None, build: str, flags: Sequence[str] = ()) -> str:
    return hashlib.sha256("\n".join((model_sha256 or "", build, *flags)).encode()).hexdigest()[:32]
