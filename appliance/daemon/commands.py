"""The control plane's commands, carried out on the rooms of this daemon."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from appliance import settings as settings_room
from appliance.daemon.downloads import Downloads
from appliance.daemon.local import LocalSide
from appliance.daemon.rooms import Rooms
from appliance.errors import NotVerified, UsageError
from appliance.operations import config
from appliance.operations import remote as remote_operations
from appliance.operations.plan import Wishes, plan_by_name
from appliance.operations.survey import survey

Document = Mapping[str, Any]
RESTART_KEYS = ("server.", "governor.")
"""Settings that a running daemon can't take over."""


class Commands:
    """Implements `appliance.gateway.control.Control`."""

    def __init__(self, rooms: Rooms, status: Callable[[], Any], stop: Callable[[], None]) -> None:
        self._rooms = rooms
        self._status = status
        self._stop = stop

    @property
    def _downloads(self) -> Downloads:
        return self._rooms.downloads

    @property
    def _local(self) -> LocalSide:
        return self._rooms.local

    async def status(self) -> Document:
        document: Document = await self._status()
        return document

    async def changed(self, timeout_s: float) -> bool:
        return await self._rooms.changes.next(timeout_s)

    async def models(self) -> Document:
        current = self._rooms.serving.snapshot
        loaded = current.ref.ref if current.ref is not None and current.engine is not None else None
        rows = await asyncio.to_thread(self._rooms.library.rows, loaded, self._downloads.running())
        return {"models": rows}

    async def load(self, ref: str, body: Document) -> Document:
        found = self._rooms.library.resolve(ref)
        wishes = Wishes(
            ctx=_whole(body, "ctx"), parallel=_whole(body, "parallel"), gpu_layers=_whole(body, "gpu_layers")
        )
        await self._rooms.library.require(found)
        await self._rooms.serving.load(found, wishes)
        return {"ref": found.ref, "state": self._rooms.serving.snapshot.state}

    async def verify(self, ref: str) -> Document:
        found = self._rooms.library.resolve(ref)
        try:
            result = await self._rooms.library.store.verify(found)
        except NotVerified as error:
            current = self._rooms.serving.snapshot.ref
            if current is not None and current.ref == found.ref:
                await self._rooms.serving.give_up(error)
            raise
        return {"ref": result.ref, "verified": True, "bytes": result.n_bytes, "seconds": result.seconds}

    async def remove(self, ref: str) -> Document:
        current = self._rooms.serving.snapshot
        in_use = (
            current.ref.ref if current.ref is not None and current.state not in ("absent", "failed") else None
        )
        freed = await asyncio.to_thread(self._rooms.library.remove, ref, in_use)
        return {"model": ref, "freed": freed}

    async def downloads(self) -> Document:
        return {"downloads": [download.to_json() for download in self._downloads.snapshot]}

    async def download(self, body: Document) -> Document:
        ref = self._rooms.library.resolve(str(body.get("model") or ""))
        return {"id": self._downloads.start(ref), "ref": ref.ref}

    async def cancel(self, key: str) -> Document:
        self._downloads.cancel(key)
        return {"id": key}

    async def plan(self, body: Document) -> Document:
        for name in ("ctx", "parallel", "gpu_layers"):
            _whole(body, name)
        return (await plan_by_name(self._rooms.library, body)).to_json()

    async def engines(self) -> Document:
        return (await survey(self._rooms.library.settings)).to_json()

    async def engine(self, action: str) -> Document:
        serving = self._rooms.serving
        if action == "stop":
            await serving.unload()
        elif action == "restart":
            await serving.restart()
        else:
            raise UsageError(f"The engine can't {action!r}.", hint="stop or restart")
        return {"state": serving.snapshot.state}

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

    async def journal(self, limit: int) -> Document:
        return {"requests": [row.to_json() for row in await self._rooms.journal.recent(limit)]}

    async def settings(self) -> Document:
        found = await asyncio.to_thread(settings_room.entries, self._rooms.paths.config_file)
        return {"settings": [entry.to_json() for entry in found]}

    async def set_setting(self, body: Document) -> Document:
        key, value = str(body.get("key") or ""), body.get("value")
        raw = value if isinstance(value, str) else settings_room.text_of(value)
        entry = await asyncio.to_thread(config.set_value, self._rooms.paths.config_file, key, raw)
        await self._rooms.reload_settings()
        return entry.to_json() | {"restart": key.startswith(RESTART_KEYS)}

    async def logs(self, after: int, limit: int) -> Document:
        lines = self._rooms.serving.lines(after, min(limit, 2_000))
        return {
            "lines": [{"seq": line.seq, "line": line.line} for line in lines],
            "next": lines[-1].seq if lines else after,
        }

    async def shutdown(self) -> Document:
        self._stop()
        return {"stopping": True}


def _whole(body: Document, name: str) -> int | None:
    value = body.get(name)
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return value
    raise UsageError(f"{name} is not a whole number.")
