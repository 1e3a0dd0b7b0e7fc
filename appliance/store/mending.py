"""A repair from its beginning to its end: wait for others, verify, fetch what differs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from appliance.catalog import ModelRef
from appliance.errors import ApplianceError, ModelMissing
from appliance.store import threads, upkeep
from appliance.store.fetching import Fetching
from appliance.store.types import Damage, OnProgress, Repaired, Stored, StoredFile

OnDamage = Callable[[ApplianceError], Awaitable[None]]
"""Told what is wrong with a model before anything is fetched."""


@dataclass(frozen=True, slots=True)
class Mending:
    """How a store mends. `recorded` gives folder and record or raises ModelMissing; `has_traces` says whether
    anything of a variant is here. Both block."""

    fetching: Fetching
    recorded: Callable[[ModelRef], tuple[Path, Stored]]
    has_traces: Callable[[ModelRef], bool]

    async def run(self, ref: ModelRef, on_progress: OnProgress, on_damage: OnDamage | None) -> Repaired:
        """See `Store.repair`."""
        while True:
            await self.fetching.wait(ref.ref, on_progress)
            try:
                return await self._mended(ref, on_progress, on_damage)
            except upkeep.AtWork:
                continue  # somebody began on it while it was read: they may well mend it

    async def _mended(self, ref: ModelRef, on_progress: OnProgress, on_damage: OnDamage | None) -> Repaired:
        damage: tuple[Damage, ...] = ()
        good: tuple[StoredFile, ...] = ()
        try:
            folder, stored = await threads.run(None, self.recorded, ref)
        except ModelMissing:
            if not await threads.run(None, self.has_traces, ref):
                raise
        else:
            found = await upkeep.read_again(self.fetching.where, folder, stored, on_progress, mending=True)
            if found.stored is not None:
                return Repaired(ref.ref, found.stored, 0, (), False)
            error = upkeep.error_of(stored, found.damage)
            if upkeep.forbidden(found.damage):
                raise error
            if on_damage is not None:
                await on_damage(error)
            good, damage = found.good, found.damage
        fetched = await self.fetching.run(ref, on_progress, good)
        return Repaired(ref.ref, fetched.stored, fetched.n_bytes, damage, True)
