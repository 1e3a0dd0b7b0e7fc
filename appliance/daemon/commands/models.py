"""Models: what there is, load, verify, repair, remove."""

from __future__ import annotations

import asyncio

from appliance.daemon.commands.base import Area, Document
from appliance.errors import ModelMissing, NotVerified
from appliance.operations.plans.answer import answer
from appliance.operations.plans.question import wishes_of
from appliance.operations.rows import rows
from appliance.operations.upkeep import checkable, repairable


class ModelCommands(Area):
    """`/api/models` and `/api/plan`."""

    async def models(self) -> Document:
        rooms = self._rooms
        current = rooms.serving.snapshot
        loaded = current.ref.ref if current.ref is not None and current.engine is not None else None
        looked = await rooms.looks.recent(current.survey)
        found = await asyncio.to_thread(
            rows, rooms.library, loaded=loaded, downloading=rooms.downloads.running(), looked=looked
        )
        return {"models": found}

    async def load(self, ref: str, body: Document) -> Document:
        found = self._rooms.library.resolve(ref)
        wishes = wishes_of(body)
        await self._rooms.library.require(found)
        await self._rooms.serving.load(found, wishes)
        return {"ref": found.ref, "state": self._rooms.serving.snapshot.state}

    async def verify(self, ref: str) -> Document:
        """Read every byte. A damaged model that is served is stopped at once."""
        library, serving = self._rooms.library, self._rooms.serving
        found = await asyncio.to_thread(checkable, library, ref)
        name = found if isinstance(found, str) else found.ref
        try:
            result = await library.store.verify(name)  # what is recorded here, whatever the catalog pins now
        except (NotVerified, ModelMissing) as error:
            if serving.uses(name):
                await serving.give_up(error)
            raise
        return {"ref": result.ref, "verified": True, "bytes": result.n_bytes, "seconds": result.seconds}

    async def repair(self, ref: str) -> Document:
        """Begun as a download, whose row says how it goes and ends."""
        found = await asyncio.to_thread(repairable, self._rooms.library, ref)
        started = await self._rooms.downloads.start(
            found.ref,
            total=found.variant.size,
            resumable=found.variant.resumable,
            repair=True,
        )
        return {"id": started.id, "ref": found.ref, "how": started.how}

    async def remove(self, ref: str, force: bool) -> Document:
        """`force` unloads it, and stops its download, first."""
        rooms = self._rooms
        name = await asyncio.to_thread(rooms.library.removable, ref)
        stopped = force and await self._let_go(name)
        current = rooms.serving.snapshot
        busy = current.ref is not None and current.state not in ("absent", "failed")
        in_use = current.ref.ref if current.ref is not None and busy else None
        freed = await asyncio.to_thread(rooms.library.remove, ref, in_use)
        await rooms.downloads.forget(name)
        if stopped:
            again = f"`appliance models pull {name}` fetches it, and it is loaded again then."
            await rooms.serving.unload(ModelMissing(f"{name} was removed.", hint=again))
        return {"model": ref, "freed": freed}

    async def _let_go(self, name: str) -> bool:
        """True when an engine was stopped for it."""
        rooms = self._rooms
        current = rooms.serving.snapshot
        served = current.ref is not None and current.ref.ref == name and current.state != "absent"
        if served:
            await rooms.serving.unload()
        await rooms.downloads.forget(name)
        return served

    async def plan(self, body: Document) -> Document:
        return await answer(self._rooms.library, body)
