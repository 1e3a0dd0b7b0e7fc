"""Folders with a short path, since sockets lie in them; and a machine with the fake NVML."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.paths import Paths
from tests import nvml_stub
from tests.engines.launches import paths_in
from tests.nvml_stub.machine import FakeMachine, fake_machine


@pytest.fixture
def paths() -> Iterator[Paths]:
    folder = Path(tempfile.mkdtemp(prefix="appl"))
    yield paths_in(folder)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def laptop(tmp_path: Path) -> FakeMachine:
    return fake_machine(nvml_stub.build(tmp_path / "library"), tmp_path)
