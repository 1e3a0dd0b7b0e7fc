"""Does it fit here? From the engine's own figures or the header, where one was seen; else from the size."""

from __future__ import annotations

import functools
from pathlib import Path

from appliance.catalog import Model, ModelRef
from appliance.errors import ApplianceError
from appliance.operations.lessons.learning import Lessons
from appliance.operations.machine.survey import Survey
from appliance.operations.models import Library
from appliance.operations.plans.header_cache import HeaderCache
from appliance.operations.plans.headers import Subject, of_pins, read_stored
from appliance.operations.plans.plan import Wishes, request_for
from appliance.operations.use import Mode
from appliance.planning import (
    Fit,
    apply_measurement,
    fit_of,
    make_plan,
    rough_fit,
)
from appliance.store import Stored

_SUBJECTS = 64
"""Headers kept in this process; a large one takes about 1 MiB."""
_State = tuple[int, int, int, int]


class Fits:
    """Judges models for one look at the machine. Reads headers and lessons, so its methods block."""

    def __init__(self, looked: Survey, library: Library) -> None:
        self._library = library
        self._lessons = Lessons(library.paths.learned)
        self._cache = HeaderCache(library.paths)
        self._problem = None if looked.error is None else looked.error.message
        asked = looked.choice is not None  # else a glance found no GPU, and RAM is all there is
        self._build = looked.build().build if asked else looked.likely or ""
        self._devices = looked.devices() if asked else ()
        self._host = looked.host()

    def of(self, ref: ModelRef, stored: Stored | None) -> Fit:
        """Whether a variant of the catalog fits; `stored` when it is here."""
        return self._fit(ref.variant.size, ref.model.context, stored, ref)

    def of_stored(self, stored: Stored) -> Fit:
        """The same for a model that no catalog lists any more."""
        return self._fit(stored.size, None, stored, None)

    def _fit(self, size: int, context: int | None, stored: Stored | None, ref: ModelRef | None) -> Fit:
        if self._problem is not None:
            return Fit(None, self._problem, "rule")
        model = None if ref is None else ref.model
        try:
            if stored is not None:
                return self._planned(_of_stored(self._cache, stored, model))
            subject = None if ref is None else of_pins(self._cache, ref)
            if subject is not None:
                return self._planned(subject)
        except (ApplianceError, OSError) as error:
            text = error.message if isinstance(error, ApplianceError) else error.strerror or "can't be read"
            return Fit(None, text, "computed")
        mode = Mode(embedding=model is not None and "embedding" in model.use)
        request = request_for(self._library.settings, Wishes(), mode)
        return rough_fit(size, context, self._devices, self._host, request)

    def _planned(self, subject: Subject) -> Fit:
        """From the formulas and what loads taught; in the engine's figures where it measured this plan."""
        request = request_for(self._library.settings, Wishes(), subject.mode)
        learned = self._lessons.of(subject.sha256, self._build)
        plan = make_plan(
            subject.header, self._devices, self._host, request, model=subject.label,
            engine_build=self._build, mmproj=subject.mmproj, draft=subject.draft,
            adapters=subject.adapters, learned=learned,
        )  # fmt: skip
        rows = self._lessons.measured(subject.key, self._build, plan.flags)
        return fit_of(plan if rows is None else apply_measurement(plan, rows))


def _of_stored(cache: HeaderCache, stored: Stored, model: Model | None) -> Subject:
    """The headers of a model that is here, read once for each state of its files."""
    return _read(cache, stored, model, tuple(_state(file.path) for file in stored.files))


@functools.lru_cache(maxsize=_SUBJECTS)
def _read(cache: HeaderCache, stored: Stored, model: Model | None, _states: tuple[_State, ...]) -> Subject:
    return read_stored(cache, stored, model)


def _state(path: Path) -> _State:
    found = path.stat()
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino
