"""The Downloads panel, shown while there are any."""

from __future__ import annotations

from appliance.client import DownloadRow
from appliance.units import GIB, MIB, duration, size
from tui import glyphs
from tui.frame import PanelView
from tui.graphs import bar
from tui.lines import Line, Span, fit, joined, joined_within, line, width_of
from tui.state import View
from tui.words import gib, percent

MOVING = ("downloading", "extracting", "verifying", "repairing")
"""Phases that a bar stands for."""


def downloads_panel(view: View, width: int) -> PanelView:
    """One line per transfer, those that move first; a cancelled one is no longer of interest here."""
    rows = [row for row in (view.snapshot.downloads if view.snapshot else ()) if row.phase != "cancelled"]
    rows.sort(key=_rank)
    return PanelView("Downloads", tuple(_row(row, width) for row in rows), counts(rows))


_LAST = ("waiting", "paused", "failed", "done")


def _rank(row: DownloadRow) -> int:
    return _LAST.index(row.phase) + 1 if row.phase in _LAST else 0


def counts(rows: list[DownloadRow]) -> Line:
    """How many are active, paused and failed."""
    paused = sum(row.phase == "paused" for row in rows)
    failed = sum(row.phase == "failed" for row in rows)
    active = sum(not row.ended for row in rows) - paused
    return joined(
        [
            line(f"{active} active"),
            line(f"{paused} paused") if paused else (),
            line(Span(f"{failed} failed", "bad")) if failed else (),
        ]
    )


def _row(row: DownloadRow, width: int) -> Line:
    name = fit(row.ref, max(16, min(40, width // 3)))
    mark = state_mark(row)
    if row.phase == "failed":
        return line(Span(f"{mark.text} {name}  ", "bad"), f"failed: {row.message or 'no reason given'}")
    if row.phase == "done":
        return line(Span(f"{mark.text} {name}  ", "ok"), f"verified  {size(row.total)}")
    head = line(mark, f" {name}  ")
    if row.phase == "paused":
        return line(*head, joined_text(["paused", amount(row), row.message]))
    if row.phase not in MOVING or row.done is None:
        return line(*head, row.phase, f": {row.message}" if row.message else "")
    start = line(*head, Span(meter(row, 10), "accent"))
    word = [line(row.phase)] if row.phase != "downloading" else []
    said = [*word, *numbers(row), *remarks(row)]
    return (*start, *joined_within(said, width - width_of(start)))


def state_mark(row: DownloadRow) -> Span:
    """The glyph of a transfer."""
    match row.phase:
        case "failed":
            return Span(glyphs.FAILED, "bad")
        case "done":
            return Span(glyphs.DONE, "ok")
        case "paused":
            return Span(glyphs.PAUSED, "warn")
        case "cancelled" | "waiting":
            return Span(glyphs.STOPPED, "muted")
        case _:
            return Span(glyphs.BUSY, "accent")


def meter(row: DownloadRow, width: int) -> str:
    """A bar and its percentage; empty when the size is not known."""
    if not row.total or row.done is None:
        return ""
    share = row.done / row.total
    return f"{bar([(share, '█')], 1.0, width)} {percent(share * 100):>5}  "


def amount(row: DownloadRow) -> str:
    """How much of it is here, in the unit that fits the whole."""
    if row.total is not None and row.total < GIB:
        here = "n/a" if row.done is None else f"{row.done / MIB:.1f}"
        return f"{here}/{row.total / MIB:.1f} MiB"
    return f"{gib(row.done)}/{gib(row.total)} GiB"


def numbers(row: DownloadRow) -> list[Line]:
    """How much, how fast, how long."""
    rate = "" if row.rate is None else f"{size(int(row.rate))}/s"
    left = "" if row.eta_s is None else f"{duration(row.eta_s)} left"
    return [line(text) for text in (amount(row), rate, left) if text]


def remarks(row: DownloadRow) -> list[Line]:
    """What else to know while it runs: what the daemon says, else what a stop would cost; its limit."""
    again = {True: "resumable", False: "starts over after a stop", None: ""}[row.resumable]
    limit = "" if row.limit is None else f"at most {size(row.limit)}/s"
    return [line(text) for text in (row.message or again, limit) if text]


def joined_text(parts: list[str | None]) -> str:
    """What is there of `parts`, with the usual mark between."""
    return " · ".join(part for part in parts if part)
