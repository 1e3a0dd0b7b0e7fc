"""Downloads: start, pause, resume, cancel."""

from __future__ import annotations

from appliance.daemon.commands.base import Area, Document, flag, whole


class DownloadCommands(Area):
    """`/api/downloads`."""

    async def downloads(self) -> Document:
        return {"downloads": [download.to_json() for download in self._rooms.downloads.snapshot]}

    async def download(self, body: Document) -> Document:
        """`how` is new, joined (it was on its way already) or resumed (it was paused)."""
        accepted, limit = flag(body, "accept_license"), whole(body, "rate", least=1)
        ref = await self._rooms.fetching.allowed(str(body.get("model") or ""), accepted)
        started = await self._rooms.downloads.start(
            ref.ref,
            total=ref.variant.size,
            resumable=ref.variant.resumable,
            limit=limit,
        )
        row = self._rooms.downloads.row(started.id)
        return {"id": started.id, "ref": ref.ref, "how": started.how, "limit": row.limit}

    async def pause(self, key: str) -> Document:
        return (await self._rooms.downloads.pause(key)).to_json()

    async def resume(self, key: str) -> Document:
        return (await self._rooms.downloads.resume(key)).to_json()

    async def cancel(self, key: str) -> Document:
        await self._rooms.downloads.cancel(key)
        return {"id": key}
