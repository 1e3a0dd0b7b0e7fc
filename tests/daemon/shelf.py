"""A real library whose models come from a server on this machine, and the downloads over it."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from appliance import settings
from appliance.daemon import queue_file
from appliance.daemon.download import Download
from appliance.daemon.downloads import Downloads
from appliance.daemon.fetching import Fetching
from appliance.daemon.here import Here
from appliance.daemon.pool import Pool
from appliance.monitor import Monitor
from appliance.operations.lessons.learning import Lessons
from appliance.operations.models import Library
from appliance.paths import Paths
from appliance.settings import Governor
from tests.store.server import Host

SIZE = 24 << 20
"""Bytes of the model."""
ENTRY = """
[models.{id}]
family = "tiny"
name = "Tiny {id}"
context = 1024
license = "apache-2.0"
use = ["chat"]
[[models.{id}.variants]]
quant = "F32"
source = {{ kind = "url", url = "{url}/{id}/tiny.gguf" }}
files = [{{ name = "tiny.gguf", role = "model", size = {size}, sha256 = "{sha256}" }}]
"""


def catalog(host: Host, *ids: str, sha256: str | None = None) -> str:
    """A models.toml in which every id is the body of `host`."""
    found = sha256 or hashlib.sha256(host.body).hexdigest()
    return "schema = 1\n" + "".join(
        ENTRY.format(id=one, url=host.url, size=len(host.body), sha256=found) for one in ids
    )


def pool_of(library: Library) -> tuple[Pool, Here]:
    """An empty pool that was not started, and what lies on the disk."""
    here = Here(lambda: library)
    return Pool(library, monitor=Monitor(Governor()), lessons=Lessons(library.paths.learned), here=here), here


@dataclass
class Shelf:
    """Downloads as a daemon builds them."""

    library: Library
    downloads: Downloads
    told: list[int]

    @classmethod
    async def open(cls, paths: Paths, *, begin: bool = True) -> Shelf:
        """Reads what an earlier one left."""
        library = Library.open(paths, settings.Settings())
        told: list[int] = []
        fetching = Fetching(lambda: library, *pool_of(library))
        downloads = Downloads(fetching, paths.state / queue_file.NAME, lambda: told.append(1))
        await downloads.restore()
        if begin:
            downloads.begin()
        return cls(library, downloads, told)

    def row(self, key: str) -> Download:
        return self.downloads.row(key)

    async def until(self, look: Callable[[], Any], limit_s: float = 20.0) -> None:
        """Wait, bounded, until `look` is true; each move of a row is a reason to look again."""
        async with asyncio.timeout(limit_s):
            while not look():
                await self.downloads.moved(0.05)

    async def ended(self, key: str) -> Download:
        await self.until(lambda: self.row(key).finished)
        return self.row(key)
