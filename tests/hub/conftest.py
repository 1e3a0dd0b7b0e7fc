"""Fixtures of the Hub's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hub.server import Hub


@pytest.fixture(autouse=True)
def _here_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the developer's own Hub settings or proxies decides a test."""
    for name in (
        "HF_TOKEN",
        "HUGGING_FACE_HUB_TOKEN",
        "HF_ENDPOINT",
        "HF_HUB_OFFLINE",
        "HTTP_PROXY",
        "http_proxy",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def hub() -> Iterator[Hub]:
    made = Hub()
    with made.running():
        yield made


@pytest.fixture
def env(hub: Hub) -> dict[str, str]:
    """The environment of a user whose Hub is the one of the test, and who has no token."""
    return {"HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}
