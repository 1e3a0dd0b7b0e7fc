"""Fixtures of the tests of imports."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.paths import Paths
from appliance.store import Store
from tests.store.imports.house import BODY, Disk


@pytest.fixture
def here(paths: Paths, store: Store) -> Disk:
    return Disk(paths, store)


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """The file of another program, on the disk of the store."""
    path = tmp_path / "theirs" / "tiny.gguf"
    path.parent.mkdir()
    path.write_bytes(BODY)
    return path


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A folder on another file system."""
    folder = Path(f"/dev/shm/appliance-test-{os.getpid()}-{tmp_path.name}")
    if not Path("/dev/shm").is_dir() or Path("/dev/shm").stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("needs a second file system")
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)
