"""The house style in figures, so that rooms stay small."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted([*(ROOT / "appliance").rglob("*.py"), *(ROOT / "tui").rglob("*.py")])
PACKAGES = sorted({file.parent for file in SOURCES})

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions() -> Iterator[tuple[Path, Function]]:
    for file in SOURCES:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield file, node


def test_files_and_functions_can_be_read_at_once() -> None:
    long_files = [str(file) for file in SOURCES if file.read_text(encoding="utf-8").count("\n") > 300]
    long_functions = [
        f"{file}:{node.name}" for file, node in functions() if (node.end_lineno or 0) - node.lineno >= 60
    ]
    assert long_files == []
    assert long_functions == []


@pytest.mark.parametrize("package", PACKAGES, ids=str)
def test_a_room_says_what_it_is_for(package: Path) -> None:
    readme = package / "README.md"
    parent = package.parent / "README.md"
    assert readme.exists() or parent.exists(), f"{package} has no README.md"
    if readme.exists():
        assert 15 <= readme.read_text(encoding="utf-8").count("\n") <= 70


def test_nothing_is_left_open_and_no_registry_is_named() -> None:
    marks = ("TO" + "DO:", "FIX" + "ME", "NotImplemented" + "Error", "py" + "pi.org", "python" + "hosted.org")
    found = [
        f"{file}: {mark}" for file in SOURCES for mark in marks if mark in file.read_text(encoding="utf-8")
    ]
    assert found == []


def test_no_wait_can_swallow_a_cancel() -> None:
    """Before Python 3.12 `asyncio.wait_for` loses a cancel that meets its result; `timeout` keeps it."""
    found = [str(file) for file in SOURCES if "wait_for(" in file.read_text(encoding="utf-8")]
    assert found == []
