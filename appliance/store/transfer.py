"""Fetching one file by HTTP ranges: resume, retry, and never append a byte that was not asked for."""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import dataclass
from urllib.parse import urlsplit

import aiohttp

from appliance.errors import DownloadError
from appliance.store import firstbytes, responses
from appliance.store.http import Answer, Client
from appliance.store.partfile import PartFile
from appliance.store.progress import Reporter
from appliance.store.responses import Asked, Retry
from appliance.store.sink import Sink
from appliance.store.types import Limits

log = logging.getLogger("appliance.store")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a file is on the network."""

    url: str
    token: str | None = None
    revision: str | None = None
    """The pinned commit. The URL holds it, so that a range continues the same file without If-Range."""
    page: str | None = None

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or "the server"


class Transfer:
    """Brings `part` to its full size. `run` may be cancelled at any time; what has arrived stays on disk."""

    def __init__(
        self, client: Client, place: Place, part: PartFile, report: Reporter, limits: Limits
    ) -> None:
        self._client = client
        self._place = place
        self._part = part
        self._report = report
        self._limits = limits
        self._whole = False
        self._refused_signed = False

    async def run(self) -> None:
        """Try until the file has its size. Raises DownloadError, DiskFull, NotVerified or Overlong."""
        failures, best = 0, self._part.offset
        while self._part.offset < self._part.file.size:
            wait, why = await self._try()
            if self._part.offset >= self._part.file.size:
                return
            failures = 0 if self._part.offset > best else failures + 1
            best = max(best, self._part.offset)
            if failures >= self._limits.attempts:
                raise DownloadError(
                    f"{self._part.file.base_name} can't be fetched from {self._place.host}.",
                    cause=f"{why}, {failures} times without a new byte.",
                    hint="Check the network and pull again; what has arrived is kept.",
                )
            await self._pause(wait, failures, why)

    async def _try(self) -> tuple[float | None, str]:
        """One request. Returns the wait that the server asks for, and why the file is not whole yet."""
        try:
            await self._attempt()
        except Retry as retry:
            self._whole = self._whole or retry.whole
            if "expired" in retry.why:
                self._one_expiry()
            return retry.wait_s, retry.why
        except (aiohttp.ClientError, TimeoutError, asyncio.IncompleteReadError) as error:
            return None, _network(error, self._place.host)
        except (ValueError, OSError) as error:  # an address that can't be used, a resolver that fails
            return None, f"{self._place.host} can't be reached ({error.__class__.__name__})"
        return None, "the connection ended early"

    def _one_expiry(self) -> None:
        if self._refused_signed:
            raise DownloadError(
                f"{self._place.host} refused {self._part.file.base_name} with status 403.",
                cause="A fresh address was refused, too.",
                hint="Check the token and the terms of the model.",
            )
        self._refused_signed = True

    async def _attempt(self) -> None:
        part, file = self._part, self._part.file
        offset = 0 if self._whole else part.offset
        asked = Asked(file.base_name, file.size, file.sha256, offset, self._place.host, self._place.page)
        source = responses.shown(self._place.url)
        headers: dict[str, str] = {}
        if offset:
            headers["Range"] = f"bytes={offset}-"
            etag = None if self._place.revision else await asyncio.to_thread(part.etag, source)
            if etag:
                headers["If-Range"] = etag
        async with self._client.get(self._place.url, headers, self._place.token) as answer:
            responses.check_pin(answer.stated, asked, self._place.revision)
            found = answer.response
            start = responses.judge(found.status, found.headers, asked, redirected=answer.redirected)
            await self._receive(answer, start, source)

    async def _receive(self, answer: Answer, start: int, source: str) -> None:
        content, first = answer.response.content, b""
        if start == 0:
            first = await self._sniff(content)
            if not first:
                return
            if self._part.offset:
                log.info("%s starts over: the server sends the whole file", self._part.file.base_name)
            self._whole = False
        etag = responses.strong_etag(answer.response.headers)

        def begin() -> None:
            if start == 0:
                self._part.restart()
                self._report.done = 0
            self._part.remember(source, etag)

        sink = Sink(self._part, begin, self._moved)
        self._report.phase("downloading", total=self._report.whole)
        try:
            if first:
                await sink.put(first)
            async for chunk in content.iter_any():
                await sink.put(chunk)
        finally:
            await sink.close()

    def _moved(self, done: int) -> None:
        self._report.done = done

    async def _sniff(self, content: aiohttp.StreamReader) -> bytes:
        """The first bytes of a whole body, judged before anything on disk is touched."""
        first = b""
        while len(first) < firstbytes.WANTED:
            chunk = await content.read(firstbytes.WANTED - len(first))
            if not chunk:
                break
            first += chunk
            if len(first) >= firstbytes.NEEDED and first.startswith(b"GGUF"):
                break
        found = firstbytes.problem(first, self._part.file.base_name, self._place.host) if first else None
        if found is not None:
            raise found
        return first

    async def _pause(self, asked: float | None, failures: int, why: str) -> None:
        if asked is not None and asked > self._limits.retry_after_max_s:
            raise DownloadError(
                f"{self._place.host} asks to wait {asked:.0f} seconds.",
                cause=why,
                hint="Pull again after that time; what has arrived is kept.",
            )
        backoff = min(self._limits.backoff_max_s, self._limits.backoff_s * 2 ** max(0, failures - 1))
        wait = backoff * random.uniform(0.75, 1.25) if asked is None else asked  # noqa: S311 - jitter
        log.info("%s: %s; next try in %.1f s", self._part.file.base_name, why, wait)
        self._report.phase("downloading", total=self._report.whole, message=f"{why}; trying again")
        await asyncio.sleep(wait)


def _network(error: Exception, host: str) -> str:
    """A network error in a few words that name the host; no address with secrets in it."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        raise DownloadError(
            f"The certificate of {host} is not trusted.",
            cause=str(error.certificate_error),
            hint="Add your company's certificate to the system's trust store; it is always checked.",
        ) from None
    if isinstance(error, aiohttp.InvalidURL):
        raise DownloadError(
            f"The address of {host} can't be used.", hint="Check the catalog entry."
        ) from None
    if isinstance(error, TimeoutError):
        return f"{host} sent nothing for too long"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"the name {host} can't be resolved"
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"{host} can't be reached ({error.os_error.strerror or 'no connection'})"
    return "the connection broke"
