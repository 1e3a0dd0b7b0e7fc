"""Which models lie on this disk, for questions of every request: answered without touching the disk."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from appliance.catalog import ModelRef
from appliance.errors import ApplianceError
from appliance.operations.models import Library

FRESH_S = 2.0


class Here:
    """The refs that were here at the last look. A look is taken in a thread, at most one at a time."""

    def __init__(self, library: Callable[[], Library]) -> None:
        self._library = library
        self._refs: frozenset[str] = frozenset()
        self._at = 0.0
        self._looking: asyncio.Task[None] | None = None

    async def look(self) -> None:
        """Look now: something was fetched, imported or removed, or the daemon starts."""
        store = self._library().store
        found = await asyncio.to_thread(store.list)
        self._refs, self._at = frozenset(stored.ref for stored in found), time.monotonic()

    @property
    def refs(self) -> frozenset[str]:
        """As of the last look. When that is some seconds old, the next one is begun."""
        if time.monotonic() - self._at > FRESH_S and (self._looking is None or self._looking.done()):
            self._looking = asyncio.ensure_future(self._look_again())
        return self._refs

    def resolve(self, name: str) -> ModelRef:
        """The model that a name, alias or family means; of several variants one that is here.

        Raises UnknownModel with the nearest names.
        """
        library = self._library()
        return library.catalog.resolve(name, aliases=library.settings.aliases, installed=self.refs)

    def has(self, ref: str) -> bool:
        """Whether its files lie here. What is not known yet is looked up on the disk, once per question."""
        return ref in self.refs or self._library().store.find(ref) is not None

    def models(self) -> tuple[ModelRef, ...]:
        """All that are here and that the catalog knows, by name."""
        catalog = self._library().catalog
        return tuple(ref for ref in catalog.refs() if ref.ref in self.refs)

    async def close(self) -> None:
        """End a look that is under way."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    async def _look_again(self) -> None:
        try:
            await self.look()
        except (ApplianceError, OSError):
            self._at = time.monotonic()  # the last look stands; the store tells who asks it
