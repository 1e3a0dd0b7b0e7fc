"""Models: what there is, load, verify, repair, remove."""

from __future__ import annotations

import asyncio

from appliance.daemon.commands.base import Area, Document, flag
from appliance.daemon.pool import Seat
from appliance.errors import ModelInUse, ModelMissing, NotVerified
from appliance.operations import config
from appliance.operations.plans.answer import answer
from appliance.operations.plans.question import wishes_of
from appliance.operations.rows import rows
from appliance.operations.upkeep import checkable, repairable


class ModelCommands(Area):
    """`/api/models` and `/api/plan`."""

    async def models(self) -> Document:
        rooms = self._rooms
        loaded = frozenset(seat.ref.ref for seat in rooms.pool if seat.serving.snapshot.engine is not None)
        default = rooms.pool.default
        looked = await rooms.looks.recent(default.serving.snapshot.survey if default is not None else None)
        found = await asyncio.to_thread(
            rows, rooms.library, loaded=loaded, downloading=rooms.downloads.running(), looked=looked
        )
        return {"models": found}

    async def load(self, ref: str, body: Document) -> Document:
        found = self._rooms.library.resolve(ref)
        wishes = wishes_of(body)
        await self._rooms.library.require(found)
        await self._rooms.pool.load(found, wishes)
        return self._stands(self._rooms.pool.seat(found))

    async def unload(self, ref: str) -> Document:
        """Free its memory; a request loads it again."""
        seat = self._seat(ref)
        await self._rooms.pool.unload(seat)
        return self._stands(seat)

    async def restart(self, ref: str) -> Document:
        """Load it again with what is free now."""
        seat = self._seat(ref)
        await self._rooms.pool.restart(seat)
        return self._stands(seat)

    async def pin(self, ref: str, body: Document) -> Document:
        """Keep it loaded, or no longer: `models.pinned` in the settings is changed."""
        rooms, pinned = self._rooms, flag(body, "pinned")
        found = rooms.library.resolve(ref)
        await asyncio.to_thread(config.pin, rooms.paths.config_file, found.ref, pinned)
        await rooms.reload_settings()
        return {"ref": found.ref, "pinned": pinned}

    def _seat(self, name: str) -> Seat:
        """Raises UnknownModel, or ModelMissing when no engine of it is known."""
        found = self._rooms.library.resolve(name)
        seat = self._rooms.pool.find(found.ref)
        if seat is None:
            raise ModelMissing(
                f"{found.ref} was not loaded.", hint=f"`appliance models load {found.ref}` loads it."
            )
        return seat

    @staticmethod
    def _stands(seat: Seat) -> Document:
        return {"ref": seat.ref.ref, "state": seat.serving.snapshot.state}

    async def verify(self, ref: str) -> Document:
        """Read every byte. A damaged model that is served is stopped at once."""
        library, pool = self._rooms.library, self._rooms.pool
        found = await asyncio.to_thread(checkable, library, ref)
        name = found if isinstance(found, str) else found.ref
        try:
            result = await library.store.verify(name)  # what is recorded here, whatever the catalog pins now
        except (NotVerified, ModelMissing) as error:
            if pool.uses(name):
                await pool.give_up(name, error)
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
        seat = rooms.pool.find(name)
        busy = seat is not None and seat.serving.snapshot.state not in ("absent", "failed")
        if users := rooms.pool.helped_by(name):
            raise ModelInUse(
                f"{name} is the draft model of {', '.join(users)}, which is loaded.",
                hint=f"`appliance models unload {users[0]}` first.",
            )
        freed = await asyncio.to_thread(rooms.library.remove, ref, name if busy else None)
        await rooms.here.look()
        await rooms.downloads.forget(name)
        if stopped and seat is not None:
            again = f"`appliance models pull {name}` fetches it, and it is loaded again then."
            await rooms.pool.unload(seat, ModelMissing(f"{name} was removed.", hint=again))
        return {"model": ref, "freed": freed}

    async def _let_go(self, name: str) -> bool:
        """True when an engine was stopped for it."""
        rooms = self._rooms
        seat = rooms.pool.find(name)
        served = seat is not None and seat.serving.snapshot.state != "absent"
        if served and seat is not None:
            await rooms.pool.unload(seat)
        await rooms.downloads.forget(name)
        return served

    async def plan(self, body: Document) -> Document:
        return await answer(self._rooms.library, body)
