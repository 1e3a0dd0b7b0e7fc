"""Looking after what is here: verify, repair, prune. Each works the same with and without a daemon."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from appliance.catalog import ModelRef
from appliance.errors import ApplianceError, ModelMissing, NotVerified, UnknownModel
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
    unrecorded: str | None = None
    """Why that could not be written down; None = it was."""

    def to_json(self) -> dict[str, Any]:
        """`{"model", "verified", "bytes", "seconds", "unrecorded"}`; damaged: `error`, `damage` last."""
        if self.error is None:
            return {
                "model": self.model,
                "verified": True,
                "bytes": self.n_bytes,
                "seconds": self.seconds,
                "unrecorded": self.unrecorded,
            }
        error = self.error.to_json()
        damage = error.pop("damage", [])
        return {"model": self.model, "verified": False, "error": error, "damage": damage}


def recorded_refs(library: Library) -> tuple[str, ...]:
    """Every model that was verified here, also one that is damaged or gone since, or that no catalog lists.

    Where the folder of an id can't be read, the id alone.
    """
    whole = (stored.ref for stored in library.store.recorded())
    return tuple(sorted({*whole, *library.store.damaged()}))


def checkable(library: Library, name: str) -> ModelRef | str:
    """What `name` means to verify: a variant of the catalog, or one that is only on this disk.

    Raises UnknownModel.
    """
    try:
        return library.resolve(name)
    except UnknownModel:
        found = library.here(name)
        if found is None:
            raise
        return found


def repairable(library: Library, name: str) -> ModelRef:
    """What `name` means to repair. Raises UnknownModel, also for what is here and no catalog lists."""
    found = checkable(library, name)
    if isinstance(found, str):
        raise UnknownModel(
            f"The catalog no longer lists {found}, so nothing tells where its bytes come from.",
            hint=_unlisted_hint(found),
        )
    return found


def _unlisted_hint(ref: str) -> str:
    return (
        f"`appliance models add SOURCE --id {ref.partition(':')[0]}` lists it again, then a repair can fetch "
        f"what differs; `appliance models rm {ref}` removes what is here."
    )


async def verify_one(library: Library, ref: ModelRef | str, on_progress: OnProgress = no_progress) -> Checked:
    """Read one model again. A name means what is recorded here, whatever the catalog pins now.

    What is wrong with it is in the result; nothing is raised.
    """
    try:
        result = await library.store.verify(ref, on_progress)
    except ApplianceError as error:
        name = ref if isinstance(ref, str) else ref.ref
        if isinstance(error, NotVerified | ModelMissing) and library.catalog.find(name) is None:
            error.hint = _unlisted_hint(name)
        return Checked(name, error)
    return Checked(result.ref, None, result.n_bytes, result.seconds, result.unrecorded)


async def repair(library: Library, name: str, on_progress: OnProgress = no_progress) -> Repaired:
    """Verify a model and fetch what differs. Raises what `Store.repair` raises, and UnknownModel."""
    return await library.store.repair(repairable(library, name), on_progress)


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


def saved_prompts(library: Library) -> tuple[Pruned, ...]:
    """What `models prune --private` removes: saved prompts of engines."""
    from appliance.engines.slots.shelf import Shelf

    shelf = Shelf(library.paths.prompts)
    return tuple(
        Pruned("prompt", shelf.folder(one.key) / one.name, one.n_bytes, f"{one.tokens} tokens of requests")
        for one in shelf.entries()
    )


def forget_prompts(library: Library) -> None:
    """Remove them, whatever else lies there. A running daemon does it itself (`PromptCaches.clear`)."""
    from appliance.engines.slots.shelf import Shelf

    Shelf(library.paths.prompts).clear()


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
