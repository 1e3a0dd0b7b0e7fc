"""A clean terminal environment, and a stub daemon per test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.paths import Paths
from tests.client.stub_daemon import StubDaemon


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of the developer's terminal decides a test."""
    for name in ("NO_COLOR", "COLUMNS", "LINES", "SSH_CONNECTION"):
        monkeypatch.delenv(name, raising=False)
    for name in [name for name in os.environ if name.startswith("TEXTUAL")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """Folders below the test's own."""
    return Paths(*(tmp_path / name for name in ("config", "data", "state", "cache", "run")))


@pytest.fixture
def stub(paths: Paths) -> Iterator[StubDaemon]:
    """A running stub daemon with the normal document."""
    daemon = StubDaemon(paths).start()
    yield daemon
    daemon.stop()
