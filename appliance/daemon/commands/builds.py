"""Engine builds: what is here, install, use, roll back, remove. The running engine is never touched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from appliance.daemon.commands.base import Area, Document
from appliance.engines.builds.fetch import Tell
from appliance.errors import UsageError
from appliance.operations import engines


class BuildCommands(Area):
    """`/api/engines`. Each change takes effect when an engine is started the next time."""

    async def engines(self) -> Document:
        return await engines.listing(self._rooms.library.settings, self._rooms.paths)

    async def install_engine(self, body: Document) -> Document:
        """Begins, or joins; `engine_install` tells how it goes."""
        backend, source = _text(body, "backend"), body.get("source")
        if source is not None and not isinstance(source, str):
            raise UsageError("source is no text.")

        async def work(tell: Tell) -> Mapping[str, Any]:
            library = self._rooms.library
            return await engines.install(library.settings, self._rooms.paths, backend, source, tell)

        return self._rooms.installing.start(backend, source, work)

    async def engine_install(self) -> Document:
        return self._rooms.installing.row()

    async def cancel_engine_install(self) -> Document:
        return await self._rooms.installing.cancel()

    async def use_engine(self, body: Document) -> Document:
        return await engines.use(self._rooms.library.settings, self._rooms.paths, _text(body, "name"))

    async def rollback_engine(self) -> Document:
        return await engines.rollback(self._rooms.library.settings, self._rooms.paths)

    async def remove_engine(self, name: str, forget: bool) -> Document:
        return await engines.remove(self._rooms.library.settings, self._rooms.paths, name, forget=forget)


def _text(body: Document, key: str) -> str:
    value = body.get(key)
    if isinstance(value, str) and value:
        return value
    raise UsageError(f"{key} is missing.")
