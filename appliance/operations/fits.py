"""Does it fit here? From the header of a file that is here; by its size where none is."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

from appliance.catalog import ModelRef
from appliance.errors import ApplianceError
from appliance.gguf import Header, read_header
from appliance.operations.plan import Wishes, request_for
from appliance.operations.survey import Survey
from appliance.planning import Fit, PlanRequest, fit_of, make_plan, rough_fit
from appliance.settings import Settings
from appliance.store import Stored

_HEADERS = 64
"""Headers kept in this process; those of a 262k-token vocabulary take about 1 MiB each."""


class Fits:
    """Judges models for one look at the machine. Reads headers, so its methods block."""

    def __init__(self, looked: Survey, settings: Settings) -> None:
        self._settings = settings
        self._host = looked.host()
        self._problem = None if looked.error is None else looked.error.message
        asked = looked.choice is not None  # else a glance found no GPU, and RAM is all there is
        self._build = looked.build().build if asked else ""
        self._devices = looked.devices() if asked else ()

    def of(self, ref: ModelRef, stored: Stored | None) -> Fit:
        """Whether a variant of the catalog fits; `stored` when it is here."""
        if self._problem is not None:
            return Fit(None, self._problem, True)
        request = self._request("embedding" in ref.model.use)
        if stored is not None and _is_one_file(stored):
            return self._planned(stored, request)
        return rough_fit(ref.variant.size, ref.model.context, self._devices, self._host, request)

    def of_stored(self, stored: Stored) -> Fit:
        """The same for a model that no catalog lists any more."""
        if self._problem is not None:
            return Fit(None, self._problem, True)
        request = self._request(False)
        if _is_one_file(stored):
            return self._planned(stored, request)
        return rough_fit(stored.size, None, self._devices, self._host, request)

    def _request(self, embedding: bool) -> PlanRequest:
        return request_for(self._settings, Wishes(), embedding=embedding)

    def _planned(self, stored: Stored, request: PlanRequest) -> Fit:
        try:
            plan = make_plan(
                _header(stored.main),
                self._devices,
                self._host,
                request,
                model=stored.ref,
                engine_build=self._build,
            )
        except (ApplianceError, OSError) as error:
            return Fit(None, error.message if isinstance(error, ApplianceError) else str(error), False)
        return fit_of(plan)


def _is_one_file(stored: Stored) -> bool:
    """Whether one header tells of all weights. Each part of a split set has its own."""
    return sum(file.role == "model" for file in stored.files) == 1


def _header(path: Path) -> Header:
    """The header of a file, read once for each state of it."""
    found = path.stat()
    return _read(path, (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino))


@functools.lru_cache(maxsize=_HEADERS)
def _read(path: Path, _state: Sequence[int]) -> Header:
    return read_header(path)
