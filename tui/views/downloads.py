"""The Downloads panel, shown while there are any."""

from __future__ import annotations

from appliance.client import DownloadRow
from appliance.units import duration, size
from tui import glyphs
from tui.frame import PanelView
from tui.graphs import bar
from tui.lines import Line, Span, fit, joined, joined_within, line, width_of
from tui.state import View
from tui.words import gib, percent


def downloads_panel(view: View, width: int) -> PanelView:
    """One line per transfer."""
    rows = view.snapshot.downloads if view.snapshot else ()
    active = sum(row.phase not in ("done", "failed") for row in rows)
    failed = sum(row.phase == "failed" for row in rows)
    scope = joined([line(f"{active} active"), line(Span(f"{failed} failed", "bad")) if failed else ()])
    return PanelView("Downloads", tuple(_row(row, width) for row in rows), scope)


def _row(row: DownloadRow, width: int) -> Line:
    name = fit(row.ref, max(16, min(40, width // 3)))
    if row.phase == "failed":
        return line(Span(f"{glyphs.FAILED} {name}  ", "bad"), f"failed: {row.message or 'no reason given'}")
    if row.phase == "done":
        return line(Span(f"{glyphs.DONE} {name}  ", "ok"), f"verified  {size(row.total)}")
    head = line(Span(f"{glyphs.BUSY} ", "accent"), f"{name}  ")
    if row.phase not in ("downloading", "verifying") or row.done is None:
        return line(*head, row.phase, f": {row.message}" if row.message else "")
    share = None if not row.total else row.done / row.total
    meter = "" if share is None else f"{bar([(share, '█')], 1.0, 10)} {percent(share * 100):>5}  "
    sizes = f"{gib(row.done)}/{gib(row.total)} GiB"
    rate = "" if row.rate is None else f"{size(int(row.rate))}/s"
    left = "" if row.eta_s is None else f"{duration(row.eta_s)} left"
    again = {True: "resumable", False: "starts over after a stop", None: ""}[row.resumable]
    word = "" if row.phase == "downloading" else row.phase
    start = line(*head, Span(meter, "accent"))
    facts = [line(text) for text in (word, sizes, rate, left, again) if text]
    return (*start, *joined_within(facts, width - width_of(start)))
