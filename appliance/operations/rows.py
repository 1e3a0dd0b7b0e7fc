"""The rows of `models list` and of `/api/models`: catalog and disk, and whether each fits here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from appliance.operations.machine.survey import Survey
from appliance.operations.models import Library, orphan
from appliance.operations.plans.fits import Fits
from appliance.store import Holding, Stored

Row = dict[str, Any]
_NOTHING = Holding(0, None, None, False)


def rows(
    library: Library,
    *,
    loaded: frozenset[str] = frozenset(),
    downloading: frozenset[str] = frozenset(),
    looked: Survey | None = None,
) -> list[Row]:
    """Every variant of the catalog, and what else is here, with what `Library.rows` says and further:

    - `state`: `here`, `downloading`, `partial`, `damaged` (it was here, or came wrong), `missing` (a
      reference whose file is gone; `path` is where it was) or `absent`
    - `referenced`: its files are the user's own, outside the store
    - `disk`: bytes it takes on the disk, partial files included
    - `arrived`: bytes of an unfinished transfer, or null
    - `used_at`: Unix time of its last load, or null
    - `fits`: `{"where": "gpu"|"partly"|"cpu"|"no"|null, "text", "how": "measured"|"computed"|"rule",
      "estimated"}` (estimated: by rule); null without `looked`, the last look at the machine

    Reads records, logs and headers, so it blocks.
    """
    holdings = library.store.holdings()
    stored = {item.ref: item for item in library.store.list()}
    fits = None if looked is None else Fits(looked, library)
    found = library.rows(loaded, downloading)
    listed = {row["ref"] for row in found}
    found += [_unlisted(ref) for ref, held in holdings.items() if ref not in listed and _is_left(held)]
    for row in found:
        here = stored.get(row["ref"])
        row.update(_held(row["state"], holdings.get(row["ref"], _NOTHING), here))
        row["fits"] = None if fits is None else _fit(library, fits, row["ref"], here)
    return found


def _is_left(holding: Holding) -> bool:
    """Something of a model is here that is not whole, so the store does not list it."""
    return holding.damaged or holding.quarantined or bool(holding.arrived)


def _unlisted(ref: str) -> Row:
    """What is left of a model that no catalog lists any more. How large it was is not known."""
    model_id, _, quant = ref.partition(":")
    blank = orphan(Stored(ref, model_id, quant, (), 0.0, Path()), frozenset())
    return blank | {"size": None, "path": None, "state": "absent"}


def _held(state: str, holding: Holding, here: Stored | None) -> Mapping[str, Any]:
    arrived = None if here is not None else holding.arrived
    if state == "absent":
        state = _state(holding)
    return {
        "state": state,
        "referenced": state == "missing"
        or (here is not None and any(file.referenced for file in here.files)),
        "disk": holding.disk,
        "arrived": arrived,
        "used_at": holding.used_at,
    }


def _state(holding: Holding) -> str:
    """Of what is not here: a model that was is damaged, also when most of its bytes are good."""
    if holding.damaged:
        return "damaged"
    return "partial" if holding.arrived else "damaged" if holding.quarantined else "absent"


def _fit(library: Library, fits: Fits, ref: str, here: Stored | None) -> Mapping[str, Any] | None:
    entry = library.catalog.find(ref)
    if entry is not None:
        return fits.of(entry, here).to_json()
    return None if here is None else fits.of_stored(here).to_json()
