"""Fixtures of the store's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from appliance.paths import Paths
from appliance.store import Store
from tests.store.helpers import QUICK, gguf
from tests.store.server import Host


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test servers are on this machine, whatever the environment says of proxies."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """Folders of a user who has nothing yet."""
    root = tmp_path / "home"
    return Paths(root / "config", root / "data", root / "state", root / "cache", root / "run").make()


@pytest.fixture
def store(paths: Paths) -> Store:
    """A store that is not patient."""
    return Store(paths, limits=QUICK)


@pytest.fixture
async def host() -> AsyncIterator[Host]:
    """A server with one small model."""
    server = Host(gguf())
    runner = await server.start()
    yield server
    await runner.cleanup()
