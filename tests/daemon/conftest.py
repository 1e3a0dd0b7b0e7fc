"""Folders of a user who has nothing yet, and a server with one small model."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from appliance.paths import Paths
from tests.daemon.shelf import SIZE, Shelf, catalog
from tests.store.helpers import gguf
from tests.store.server import Host


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(*(tmp_path / name for name in ("config", "data", "state", "cache", "run"))).make()


@functools.cache
def body() -> bytes:
    """Made once: random bytes take their time."""
    return gguf(SIZE)


@pytest.fixture
async def host() -> AsyncIterator[Host]:
    server = Host(body())
    runner = await server.start()
    yield server
    await runner.cleanup()


@pytest.fixture
async def shelf(paths: Paths, host: Host) -> AsyncIterator[Shelf]:
    paths.user_catalog.write_text(catalog(host, "a", "b", "c", "d"), encoding="utf-8")
    made = await Shelf.open(paths)
    yield made
    await made.downloads.close()
