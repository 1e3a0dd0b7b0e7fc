"""What a download does when its turn has come: resolve, ask for the licence, pull; or mend a model."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from appliance.catalog import ModelRef
from appliance.daemon.download import Download
from appliance.daemon.here import Here
from appliance.daemon.pool import Pool
from appliance.errors import ApplianceError
from appliance.operations import catalog
from appliance.operations.models import Library
from appliance.operations.plans import family
from appliance.store import OnProgress, Repaired

log = logging.getLogger("appliance.downloads")


class Fetching:
    """The work of `Downloads`: it knows catalog, store and the served models."""

    def __init__(self, library: Callable[[], Library], pool: Pool, here: Here) -> None:
        self._library = library
        self._pool, self._here = pool, here
        self._loads: set[asyncio.Task[None]] = set()

    async def allowed(self, name: str, accepted: bool) -> ModelRef:
        """The model of a name, when its licence may be used. Raises UnknownModel or LicenseNotAccepted.

        A quant that no catalog lists is looked up on the Hub and pinned.
        """
        library = self._library()
        ref = await family.resolve(library, name)
        await asyncio.to_thread(catalog.require_license, library, ref, accepted)
        return ref

    async def __call__(self, row: Download, on_progress: OnProgress) -> Repaired | None:
        """Make the model of this row be here. Raises what resolving, the licence or the store says."""
        library = self._library()
        if row.repair:  # its bytes are here already, so its licence was accepted
            return await self._repair(library, await catalog.resolve(library, row.ref), on_progress)
        ref = await self.allowed(row.ref, False)
        await library.store.pull(ref, on_progress, rate=row.limit)
        await self._here.look()
        self._load_again(ref.ref)
        return None

    async def _repair(self, library: Library, ref: ModelRef, on_progress: OnProgress) -> Repaired:
        """A damaged model that is served is stopped before it is mended, and loaded again at the end."""

        async def stop(error: ApplianceError) -> None:
            if self._pool.uses(ref.ref):
                await self._pool.give_up(ref.ref, error)

        repaired = await library.store.repair(ref, on_progress, stop)
        self._load_again(ref.ref)
        return repaired

    def _load_again(self, ref: str) -> None:
        """Where only its files stood in the way, beside the download. The engine's state says how it ends."""
        if not self._pool.lacks(ref):
            return
        load = asyncio.ensure_future(self._restart(ref))
        self._loads.add(load)
        load.add_done_callback(self._loads.discard)

    async def _restart(self, ref: str) -> None:
        try:
            await self._pool.load_again(ref)
        except ApplianceError as error:
            log.warning("a model that is right again was not loaded: %s", error.message)
