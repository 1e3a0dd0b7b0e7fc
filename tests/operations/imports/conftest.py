"""Fixtures of the tests of imports."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The home folder in which other programs keep their models."""
    folder = tmp_path / "user"
    folder.mkdir()
    return folder
