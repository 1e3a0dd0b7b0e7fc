"""Fixtures of the operations' tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.paths import Paths
from tests.hub.server import Hub
from tests.operations import hubhouse


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """Folders of a user who has nothing yet."""
    return hubhouse.paths_under(tmp_path / "home")


@pytest.fixture
def hub() -> Iterator[Hub]:
    made = Hub()
    with made.running():
        yield made


@pytest.fixture
def env(hub: Hub) -> dict[str, str]:
    """The environment of a user whose Hub is the one of the test; no token, no proxy."""
    return {"HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1", "NO_PROXY": "127.0.0.1"}
