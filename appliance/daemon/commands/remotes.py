"""Remote endpoints: list, add, remove, test."""

from __future__ import annotations

import asyncio

from appliance.daemon.commands.base import Area, Document
from appliance.errors import UsageError
from appliance.operations import config
from appliance.operations import remote as remote_operations


class RemoteCommands(Area):
    """`/api/remotes`."""

    async def remotes(self) -> Document:
        return {"remotes": self._rooms.remote_rows()}

    async def add_remote(self, body: Document) -> Document:
        models = body.get("models") or {}
        if not isinstance(models, dict):
            raise UsageError("models is not an object of LOCAL: REMOTE.")
        added = await asyncio.to_thread(
            config.add_remote,
            self._rooms.paths.config_file,
            str(body.get("name") or ""),
            str(body.get("url") or ""),
            kind=str(body.get("kind") or "vllm"),
            api_key_env=str(body.get("api_key_env") or ""),
            models=models,
        )
        await self._rooms.reload_settings()
        return added.model_dump(mode="json")

    async def remove_remote(self, name: str) -> Document:
        await asyncio.to_thread(config.remove_remote, self._rooms.paths.config_file, name)
        await self._rooms.reload_settings()
        return {"removed": name}

    async def test_remote(self, name: str) -> Document:
        settings = self._rooms.library.settings
        remote_operations.find(settings, name)
        return remote_operations.document(await self._rooms.remotes.pool.get(name).probe(), settings)
