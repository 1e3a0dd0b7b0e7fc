"""Models by name: what the catalog lists, what is here, and the three to suggest to an empty machine."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Any

from appliance.catalog import Catalog, LiveCatalog, ModelRef, refs_of
from appliance.errors import ModelInUse, ModelMissing, UnknownModel
from appliance.hardware import Machine
from appliance.paths import Paths
from appliance.settings import Settings
from appliance.store import Store, Stored

log = logging.getLogger("appliance.models")

LAST_MODEL_FILE = "last_model"
SUGGESTED = 3
MEMORY_PER_WEIGHT_BYTE = 1.25
"""Rule of thumb for a suggestion only: weights plus a quarter for KV cache and buffers."""
BEARABLE_ON_CPU = 4 << 30
"""Bytes. Each token reads all weights once; at a desktop's 40 GB/s that is about 10 tokens/s."""


@dataclass(frozen=True, slots=True)
class Library:
    """Catalog and store of this user, opened once."""

    paths: Paths
    settings: Settings
    shelf: LiveCatalog
    store: Store

    @classmethod
    def open(cls, paths: Paths, settings: Settings) -> Library:
        """Raises CatalogError for a broken models.toml."""
        shelf = LiveCatalog(paths.user_catalog, paths.pins)
        return cls(paths, settings, shelf, Store(paths, downloads=settings.downloads))

    def using(self, settings: Settings) -> Library:
        """The same library after a change of the settings."""
        store = self.store
        if settings.downloads != self.settings.downloads:
            store = Store(self.paths, downloads=settings.downloads)
        return replace(self, settings=settings, store=store)

    @property
    def catalog(self) -> Catalog:
        """The present catalog: a change of the user's models.toml or of the pins counts at once.

        While one of them is broken, the last good state; see `catalog_problem`.
        """
        return self.shelf.current

    @property
    def catalog_problem(self) -> str | None:
        """What is wrong with the user's models.toml or the pins since they were last good; None = nothing."""
        problem = self.shelf.problem
        return None if problem is None else str(problem)

    def resolve(self, name: str) -> ModelRef:
        """A name, alias, family or `id:QUANT`. Raises UnknownModel with the nearest names."""
        here = {stored.ref for stored in self.store.list()}
        model, quant, _ = self.catalog.split(name, self.settings.aliases)
        if model is not None and not quant and not any(ref.ref in here for ref in refs_of(model)):
            here |= {stored.ref for stored in self.store.lost()}  # what was meant so far, not another variant
        return self.catalog.resolve(name, aliases=self.settings.aliases, installed=here)

    def rows(
        self, loaded: frozenset[str] = frozenset(), downloading: frozenset[str] = frozenset()
    ) -> list[dict[str, Any]]:
        """The document rows of `models list`: every variant of the catalog, and what is here."""
        lost = {stored.ref: stored for stored in self.store.lost()}
        here = {stored.ref: stored for stored in self.store.list()}
        rows = []
        for ref in self.catalog.refs():
            gone, stored = lost.pop(ref.ref, None), here.pop(ref.ref, None)
            rows.append(_row(ref, stored, loaded, downloading) | _lost(gone, stored))
        rows += [orphan(stored, loaded) for stored in here.values()]
        return rows + [orphan(gone, loaded) | _lost(gone, None) for gone in lost.values()]

    def default(self) -> ModelRef | None:
        """The model that `up` serves when none is named: the setting, the last used, or the only one here."""
        if self.settings.models.default != "auto":
            return self.resolve(self.settings.models.default)
        here = {stored.ref for stored in self.store.list()}
        last = self._last()
        for name in ([last] if last in here else []) + sorted(here):
            if name.partition(":")[0] in self.catalog.models:
                return self.resolve(name)
        return None

    def touch(self, ref: str) -> None:
        """Note that it was served now, for `models prune --unused`."""
        self.store.touch(ref)

    def remember(self, ref: str) -> None:
        """Note what a person wanted served last, for the next `up`, and when."""
        self.touch(ref)
        try:
            (self.paths.state / LAST_MODEL_FILE).write_text(ref + "\n", encoding="utf-8")
        except OSError as error:
            log.warning("which model was served last can't be noted: %s", error.strerror)

    def _last(self) -> str | None:
        try:
            return (self.paths.state / LAST_MODEL_FILE).read_text(encoding="utf-8").strip()
        except OSError:
            return None

    def suggestions(self, machine: Machine) -> tuple[ModelRef, ...]:
        """Three models for chat that this machine holds and runs at a bearable speed, largest first."""
        on_gpu = max((gpu.free or 0 for gpu in machine.gpus), default=0)
        on_cpu = min((machine.ram_available or 0) // 2, BEARABLE_ON_CPU)
        memory = max(on_gpu, on_cpu)
        return self.catalog.suggestions(
            lambda ref: ref.variant.size * MEMORY_PER_WEIGHT_BYTE <= memory, SUGGESTED
        )

    async def require(self, ref: ModelRef) -> Stored:
        """The verified files of a model that is here. Raises ModelMissing or NotVerified."""
        return await self.store.require(ref)

    def remove(self, name: str, loaded: str | None = None) -> int:
        """Delete a model's files; bytes freed. Raises UnknownModel, ModelMissing or ModelInUse."""
        ref, here = self.removable(name), self.store.holdings()
        if ref == loaded:
            raise ModelInUse(
                f"{ref} is loaded now.", hint=f"`appliance models unload {ref}` first, or --force."
            )
        if ref not in here:
            raise ModelMissing(
                f"{ref} is not here, so nothing was removed.", hint="appliance models list --here"
            )
        return self.store.remove(ref)

    def removable(self, name: str) -> str:
        """`id:QUANT` of what `name` means on this disk, or in the catalog. Raises UnknownModel."""
        if name in self.store.holdings():  # unfinished ones, too
            return name
        try:
            return self.resolve(name).ref
        except UnknownModel:
            found = self.here(name)
            if found is None:
                raise
            return found

    def here(self, name: str) -> str | None:
        """`id:QUANT` of what is on this disk, whole or not; `name` is that, or its id. None: nothing is.

        Raises UnknownModel where several variants are here under one id.
        """
        known = self.store.holdings()
        found = [name] if name in known else [ref for ref in known if ref.partition(":")[0] == name]
        if len(found) == 1:
            return found[0]
        if found:
            raise UnknownModel(
                f"Several variants of {name} are here, and the catalog lists none of them.",
                hint=f"Name one: {', '.join(sorted(found))}.",
            )
        return None

    def require_suggestion(self, machine: Machine) -> ModelMissing:
        """The error of an `up` without a model on a machine that has none."""
        names = [f"{ref.id} ({ref.variant.size / 2**30:.1f} GiB)" for ref in self.suggestions(machine)]
        return ModelMissing(
            "No model is here yet, and none was named.",
            cause='`models.default` is "auto" and the store is empty.',
            hint="Name one that fits this machine: "
            + ", ".join(names)
            + f".  Like: appliance up {names[0].split()[0]}"
            if names
            else "`appliance models list` shows what can be fetched.",
        )


def _row(
    ref: ModelRef, stored: Stored | None, loaded: frozenset[str], downloading: frozenset[str]
) -> dict[str, Any]:
    model = ref.model
    state = "here" if stored else "downloading" if ref.ref in downloading else "absent"
    return {
        "ref": ref.ref, "id": ref.id, "quant": ref.quant, "family": model.family, "name": model.name,
        "size": ref.variant.size, "params": model.params, "context": model.context, "license": model.license,
        "license_note": model.license_note, "use": list(model.use), "source": ref.variant.source.kind,
        "pin": ref.variant.pin, "pin_host": ref.variant.pin_host, "state": state, "loaded": ref.ref in loaded,
        "path": str(stored.main) if stored else None,
    }  # fmt: skip


def _lost(gone: Stored | None, stored: Stored | None) -> dict[str, Any]:
    """What a reference whose file is gone changes: where it was is still told."""
    return {} if gone is None or stored is not None else {"state": "missing", "path": str(gone.main)}


def orphan(stored: Stored, loaded: frozenset[str]) -> dict[str, Any]:
    """A model on disk that no catalog lists any more: still the user's, so still shown."""
    return {
        "ref": stored.ref, "id": stored.id, "quant": stored.quant, "family": None, "name": stored.id,
        "size": stored.size, "params": None, "context": None,
        "license": None, "license_note": None, "use": [], "source": None, "pin": None, "pin_host": None,
        "state": "here", "loaded": stored.ref in loaded, "path": str(stored.main),
    }  # fmt: skip
