"""Fixtures of the engine tests."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.paths import Paths
from tests.engines.launches import paths_in


@pytest.fixture
def paths() -> Iterator[Paths]:
    """A home with a short path: pytest's own folders are too deep for a socket."""
    folder = Path(tempfile.mkdtemp(prefix="appl"))
    yield paths_in(folder)
    shutil.rmtree(folder, ignore_errors=True)
