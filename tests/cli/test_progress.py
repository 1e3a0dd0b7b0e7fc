"""What a pull shows: bytes, speed, time left, its state in words; also of states that are not known yet."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from appliance.cli.progress import Bar, figures, meter_line
from appliance.client import DownloadRow
from appliance.store import Progress
from tests.client import documents

MIB = 1 << 20


def progress(**changes: object) -> Progress:
    values: dict[str, object] = {
        "ref": "a:Q4", "file": "a.gguf", "phase": "downloading", "done": 32 * MIB, "total": 96 * MIB,
        "rate": 8.0 * MIB, "eta_s": 8.0, "resumable": True, "message": None,
    }  # fmt: skip
    return Progress(**(values | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "32.0 MiB of 96.0 MiB · 8.0 MiB/s · 8.0 s left"),
        ({"rate": None, "eta_s": None}, "32.0 MiB of 96.0 MiB"),
        ({"total": None, "eta_s": None, "resumable": False},
         "32.0 MiB · 8.0 MiB/s · starts over after a stop"),
        ({"phase": "verifying", "resumable": False}, "32.0 MiB of 96.0 MiB · 8.0 MiB/s · 8.0 s left"),
        ({"rate": None, "message": "the process 7 is fetching it\x1b[2J\n"},
         "32.0 MiB of 96.0 MiB · the process 7 is fetching it[2J"),
    ],
)  # fmt: skip
def test_figures_say_what_is_known(changes: dict[str, object], said: str) -> None:
    p = progress(**changes)
    assert " · ".join(
        figures(p.phase, p.done, p.total, p.rate, p.eta_s, p.resumable, p.message)
    ) == said  # fmt: skip


@pytest.mark.parametrize(
    ("done", "total", "width", "line"),
    [
        (50, 100, 60, "━━━━━━━━━━━━╌╌╌╌╌╌╌╌╌╌╌╌  50 %  a · b"),
        (50, 100, 21, "━━━━╌╌╌╌  50 %  a · b"),
        (50, 100, 20, "  50 %  a · b"),
        (150, 100, 60, "━━━━━━━━━━━━━━━━━━━━━━━━ 100 %  a · b"),
        (50, None, 60, "  a · b"),
        (None, 100, 60, "  a · b"),
        (0, 0, 60, "  a · b"),
    ],
)
def test_the_bar_gives_way_to_the_figures(done: int | None, total: int | None, width: int, line: str) -> None:
    assert meter_line(done, total, ("a", "b"), width) == line


def shown(*moves: Progress | DownloadRow, width: int | None) -> str:
    out = io.StringIO()
    bar = Bar()
    terminal = width is not None
    bar._console = Console(
        file=out, force_terminal=terminal, width=width or 80, markup=False, highlight=False
    )
    bar._live.console = bar._console
    with bar:
        for move in moves:
            bar.row(move) if isinstance(move, DownloadRow) else bar.update(move)
    return out.getvalue()


def test_without_a_terminal_each_phase_is_a_line() -> None:
    said = shown(
        progress(phase="checking disk"), progress(), progress(done=33 * MIB), progress(phase="repairing"),
        progress(phase="a word of tomorrow"), width=None,
    )  # fmt: skip
    assert [line.split(":")[0] for line in said.splitlines()] == [
        "checking disk a", "downloading a", "repairing a", "a word of tomorrow a",
    ]  # fmt: skip
    assert "\x1b" not in said


@pytest.mark.parametrize("width", [40, 80, 140])
def test_at_a_terminal_no_line_is_longer_than_the_screen(width: int) -> None:
    rows = [
        DownloadRow.parse(documents.download(ref="x" * 200, message="m" * 200)),
        DownloadRow.parse(documents.download(phase="paused", paused=True, message="[/b] \x1b[2J kept")),
        DownloadRow.parse(documents.download(limit=5 * MIB)),
        DownloadRow.parse({}),
    ]
    said = shown(*rows, width=width)
    assert "paused" in said
    assert "\x1b[2J" not in said
    if width == 140:
        assert "at most 5.0 MiB/s" in said
