"""The dashboard as text, against the checked-in pictures."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from tests.tui.golden_files import CASES, FOLDER, name, picture


@pytest.mark.parametrize(("state", "size", "ascii_only"), CASES, ids=[name(*case) for case in CASES])
async def test_the_dashboard_looks_as_checked_in(state: str, size: tuple[int, int], ascii_only: bool) -> None:
    drawn = await picture(state, size, ascii_only)
    assert drawn == (FOLDER / name(state, size, ascii_only)).read_text(encoding="utf-8")
    assert drawn.isascii() or not ascii_only
    rows = drawn.splitlines()
    assert len(rows) == size[1]
    framed = [row for row in rows if row[:1] in "╭│╰+|"]
    assert {cell_len(row) for row in framed if row} == {size[0]}
