"""A stub daemon per test, in folders of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.client import Client
from appliance.paths import Paths
from tests.client.stub_daemon import StubDaemon


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """Folders below the test's own."""
    return Paths(*(tmp_path / name for name in ("config", "data", "state", "cache", "run")))


@pytest.fixture
def stub(paths: Paths) -> Iterator[StubDaemon]:
    """A running stub daemon."""
    daemon = StubDaemon(paths).start()
    yield daemon
    daemon.stop()


@pytest.fixture
def client(stub: StubDaemon, paths: Paths) -> Client:
    """A client connected to the stub."""
    return Client.connect(paths)
