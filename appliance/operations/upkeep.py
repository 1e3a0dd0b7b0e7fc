"""Looking after what is here: verify, repair, prune. Each works the same with and without a daemon."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from appliance.catalog import ModelRef
from appliance.errors import ApplianceError, UnknownModel
from appliance.operations.models import Library
from appliance.store import OnProgress, Pruned, Repaired
from appliance.store.types import no_progress


@dataclass(frozen=True, slots=True)
class Checked:
    """What a verify of one model came to."""

    model: str
    """`id:QUANT`."""
    error: ApplianceError | None
    """None: every byte matched."""
    n_bytes: int | None = None
    seconds: float | None = None

    def to_json(self) -> dict[str, Any]:
        """`{"model", "verified", "bytes", "seconds"}`; when damaged `error` and `damage` for the last two."""
        if self.error is None:
            return {
                "model": self.model,
                "verified": True,
                "bytes": self.n_bytes,
                "seconds": self.seconds,
            }
        error = self.error.to_json()
        damage = error.pop("damage", [])
        return {"model": self.model, "verified": False, "error": error, "damage": damage}


def recorded_refs(library: Library) -> tuple[str, ...]:
    """Every model that was verified here, also one whose files are gone or that no catalog lists any more."""
    return tuple(stored.ref for stored in library.store.recorded())


def checkable(library: Library, name: str) -> ModelRef | str:
    """What `name` means to verify: a variant of the catalog, or one that is only on this disk.

    Raises UnknownModel.
    """
    try:
        return library.resolve(name)
    except UnknownModel:
        if name in recorded_refs(library):
            return name
        raise


async def verify_one(library: Library, ref: ModelRef | str, on_progress: OnProgress = no_progress) -> Checked:
    """Read one model again. A name means what is recorded here, whatever the catalog pins now.

    What is wrong with it is in the result; nothing is raised.
    """
    try:
        result = await library.store.verify(ref, on_progress)
    except ApplianceError as error:
        return Checked(ref if isinstance(ref, str) else ref.ref, error)
    return Checked(result.ref, None, result.n_bytes, result.seconds)


async def repair(library: Library, name: str, on_progress: OnProgress = no_progress) -> Repaired:
    """Verify a model and fetch what differs. Raises what `Store.repair` raises, and UnknownModel."""
    return await library.store.repair(library.resolve(name), on_progress)


def repaired_json(done: Repaired) -> dict[str, Any]:
    """`{"model", "repaired", "fetched", "size", "damage"}`; `repaired` is false when it was whole."""
    return {
        "model": done.ref,
        "repaired": done.mended,
        "fetched": done.fetched,
        "size": done.stored.size,
        "damage": [item.to_json() for item in done.damage],
    }


def wanted_refs(library: Library) -> frozenset[str]:
    """What the settings name: the default model and those to preload. Unused or not, they stay."""
    names = [library.settings.models.default, *library.settings.models.preload]
    found = set()
    for name in names:
        with contextlib.suppress(UnknownModel):
            found.add(library.resolve(name).ref)
    return frozenset(found)


def pruned_json(items: Sequence[Pruned], *, dry_run: bool) -> dict[str, Any]:
    """`{"dry_run", "items": [{"kind", "path", "size", "about"}], "freed", "by_kind"}`, sizes in bytes."""
    by_kind: dict[str, int] = {}
    for item in items:
        by_kind[item.kind] = by_kind.get(item.kind, 0) + item.size
    return {
        "dry_run": dry_run,
        "items": [
            {"kind": item.kind, "path": str(item.path), "size": item.size, "about": item.about}
            for item in items
        ],
        "freed": sum(by_kind.values()),
        "by_kind": by_kind,
    }
