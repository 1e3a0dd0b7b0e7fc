"""One file on its way: what is here, the transfer, the hash, a repair, the header, the final name last."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from appliance.catalog import File
from appliance.errors import ApplianceError, GgufError, NotVerified
from appliance.store import layout, quarantine, records, threads, transfer
from appliance.store.asking import Route
from appliance.store.hasher import Hasher
from appliance.store.layout import Layout
from appliance.store.partfile import Overlong, PartFile
from appliance.store.patience import Terms
from appliance.store.places import Place
from appliance.store.repair import Repair
from appliance.store.types import StoredFile
from appliance.web import shown

log = logging.getLogger("appliance.store")
Bring = Callable[[PartFile], Awaitable[None]]
"""Fills a partial file in the order of its bytes. May raise Overlong."""


class Arrival:
    """Use one of `from_network` and `in_order`, once. `came_from` tells people where bytes come from."""

    def __init__(
        self, where: Layout, folder: Path, file: File, ref: str, terms: Terms, came_from: str
    ) -> None:
        self._where = where
        self._folder = folder
        self._file = file
        self._ref = ref
        self._terms = terms
        self._report = terms.report
        self._from = came_from
        self._part = PartFile(folder, file, chunk=terms.limits.chunk)
        self._hasher = Hasher(self._part)

    async def from_network(self, places: Sequence[Place]) -> StoredFile:
        """Resume or begin, over several connections; a mismatch is repaired. Raises what the parts raise.

        NotVerified: the bytes are quarantined.
        """
        routes, part, stop = [Route(place) for place in places], self._part, self._terms.stop
        try:
            await self._open()
            delivered = next((r for r in routes if shown(r.place.url) == part.source), None)
            if not part.map.whole:
                self._report.phase("downloading", total=self._report.whole)
                delivered = await threads.run(stop, transfer.fetch, routes, part, self._terms) or delivered
            self._verifying()
            digest = await threads.run(stop, self._hasher.digest, stop)
            if digest != self._file.sha256:
                mend = Repair(part, self._hasher, routes, delivered, self._terms)
                digest = await threads.run(stop, mend.run)
            return await self._ended(digest)
        finally:
            await threads.run(None, self._close)

    async def in_order(self, bring: Bring) -> StoredFile:
        """From a source that has an order and no ranges. A mismatch is final: NotVerified, quarantined."""
        stop = self._terms.stop
        try:
            await self._open()
            try:
                if not self._part.map.whole:
                    await bring(self._part)
            except Overlong:
                raise await self._mismatch("") from None
            self._verifying()
            return await self._ended(await threads.run(stop, self._hasher.digest, stop))
        finally:
            await threads.run(None, self._close)

    async def _open(self) -> None:
        """Read back what has arrived before; the hash follows."""
        self._report.file = self._file.base_name
        if await threads.run(None, self._part.path.exists):
            self._report.phase(
                "verifying", total=self._report.whole, message="reading what has arrived before"
            )
        self._hasher.start()
        try:
            await threads.run(self._terms.stop, self._part.open, self._terms.stop, self._moved)
        except Overlong:
            await threads.run(None, self._part.close)
            await self._set_aside("", "this disk", "it is longer than the pin says")
            await threads.run(self._terms.stop, self._part.open, self._terms.stop, self._moved)
        self._report.done = self._part.arrived

    def _verifying(self) -> None:
        self._report.done = self._part.arrived
        self._report.phase("verifying", total=self._report.whole)

    async def _ended(self, digest: str) -> StoredFile:
        if digest != self._file.sha256:
            raise await self._mismatch(digest)
        await threads.run(None, self._check_header)
        await threads.run(None, self._hasher.close)
        final = await threads.run(None, self._part.finish)
        return await threads.run(None, records.stored_file, final, self._file)

    def _check_header(self) -> None:
        """The hash matched; the header must also be one that an engine can load."""
        why = header_problem(self._part.path, self._file)
        if why is None:
            return
        kept = self._move_aside(self._file.sha256, self._from, why)
        raise unreadable(self._file, kept, why)

    async def _mismatch(self, digest: str) -> ApplianceError:
        size = (await threads.run(None, self._part.path.stat)).st_size
        kept = await self._set_aside(digest, self._from, "its bytes are not those of the pin")
        return quarantine.not_verified(self._file, digest, size, self._from, kept)

    async def _set_aside(self, digest: str, source: str, why: str) -> Path:
        log.warning("%s of %s is quarantined: %s", self._file.base_name, self._ref, why)
        return await threads.run(None, self._move_aside, digest, source, why)

    def _move_aside(self, digest: str, source: str, why: str) -> Path:
        """To quarantine, without its log: what it says of the chunks is not to be trusted."""
        for beside in (layout.log, layout.state):
            beside(self._folder, self._file).unlink(missing_ok=True)
        return quarantine.put_aside(
            self._where, self._part.path, self._file, ref=self._ref, actual=digest, source=source, why=why
        )

    def _close(self) -> None:
        self._hasher.close()
        with contextlib.suppress(OSError):
            self._part.close()

    def _moved(self, done: int) -> None:
        self._report.done = done


def header_problem(path: Path, file: File) -> str | None:
    """Why a file whose hash matched is no usable model; None when it is one."""
    from appliance.gguf import read_header

    try:
        header = read_header(path)
    except GgufError as error:
        return error.message
    end = max((header.data_offset + t.offset + t.n_bytes for t in header.tensors), default=0)
    return f"its tensors end at byte {end}, the file at {file.size}" if end > file.size else None


def check_whole(files: Sequence[StoredFile]) -> None:
    """Raise GgufError unless the parts of a split model are all here and belong together."""
    from appliance.gguf import check_set, read_header, shards_of

    parts = [file.path for file in files if shards_of(file.path.name) is not None]
    if parts:
        check_set([read_header(path) for path in parts], [path.name for path in parts])


def unreadable(file: File, kept: Path, why: str) -> NotVerified:
    """The error for `header_problem`."""
    return NotVerified(
        f"{file.base_name} matches its pin, but is no usable model.",
        cause=why,
        hint=f"It is kept as {kept}. The catalog entry pins a broken file.",
    )
