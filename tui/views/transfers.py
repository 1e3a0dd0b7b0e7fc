"""The list of downloads, one of them chosen: how far each is, and what stands in its way."""

from __future__ import annotations

from appliance.client import DownloadRow
from appliance.units import size
from tui.glyphs import SELECTED
from tui.lines import (
    Line,
    Span,
    Tone,
    between,
    crop,
    fit_line,
    joined,
    joined_within,
    line,
    width_of,
    wrap_line,
)
from tui.state import View
from tui.views.downloads import MOVING, amount, counts, joined_text, meter, numbers, remarks, state_mark

METER = 22
MOST_ROWS = 3
"""Of each of what, why and what to do."""

EMPTY = (
    "No downloads.",
    "",
    "Start one from another terminal:  appliance models pull MODEL",
    "What there is:                    appliance models list",
)


def rows_of(view: View) -> tuple[DownloadRow, ...]:
    """The transfers of the last snapshot."""
    return view.snapshot.downloads if view.snapshot else ()


def chosen(view: View, wanted: str | None) -> DownloadRow | None:
    """The row with this id, else the first one."""
    rows = rows_of(view)
    return next((row for row in rows if row.id == wanted), rows[0] if rows else None)


def neighbour(view: View, wanted: str | None, step: int) -> str | None:
    """The id `step` rows below (above) the chosen one; the list has two ends."""
    rows = rows_of(view)
    current = chosen(view, wanted)
    if current is None:
        return None
    return rows[max(0, min(len(rows) - 1, rows.index(current) + step))].id


def title_line(view: View, width: int) -> Line:
    """What this is, how many there are, and how much room is left."""
    rows = list(rows_of(view))
    left = line(Span(" Downloads", "strong"), "   ", *(counts(rows) if rows else ()))
    free = view.snapshot.host.disk_free if view.snapshot else None
    return between(left, line(Span(f"{size(free)} free ", "muted")), width)


def transfer_lines(view: View, wanted: str | None, width: int, height: int) -> tuple[Line, ...]:
    """Exactly `height` lines; the chosen transfer is always among them."""
    current = chosen(view, wanted)
    if current is None:
        said = EMPTY if view.snapshot else ("n/a",)
        lines = [(), *(line(Span(f"  {text}", "muted")) for text in said)]
        return _window(lines, 0, 0, width, height)
    lines, first, last = [], 0, 0
    for row in rows_of(view):
        block = _block(row, width, is_chosen=row is current)
        if row is current:
            first, last = len(lines), len(lines) + len(block)
        lines += [*block, ()]
    return _window(lines, first, last, width, height)


def _window(lines: list[Line], first: int, last: int, width: int, height: int) -> tuple[Line, ...]:
    start = min(first, max(0, last - height))
    shown = lines[start : start + height]
    return tuple(fit_line(one, width) for one in shown) + ((Span(" " * width),),) * (height - len(shown))


def _block(row: DownloadRow, width: int, *, is_chosen: bool) -> list[Line]:
    word = {"done": "verified"}.get(row.phase, row.phase)
    mark = Span(f" {SELECTED} " if is_chosen else "   ", "accent")
    tone: Tone = "strong" if is_chosen else "plain"
    state = Span(f"{word} ", state_mark(row).tone)
    name = crop(row.ref, max(16, width - width_of((state,)) - 8))
    out = [between(line(mark, state_mark(row), Span(f" {name}", tone)), (state,), width)]
    out += [fit_line((Span("     "), *one), width) for one in _details(row, width - 6)]
    return out


def _details(row: DownloadRow, width: int) -> list[Line]:
    if row.phase == "failed":
        return _failure(row, width)
    if row.phase in MOVING and row.done is not None:
        start = line(Span(meter(row, METER), "accent"))
        whole = (*start, *joined([*numbers(row), *remarks(row)]))
        if width_of(whole) <= width:
            return [whole]
        first = (*start, *joined_within(numbers(row), width - width_of(start)))
        return [first, joined_within(remarks(row), width)]
    if row.phase == "done":
        fetched = f"{size(row.fetched)} fetched to mend it" if row.fetched is not None else None
        return [line(joined_text([size(row.total), fetched]))]
    start = line(Span(meter(row, METER), "muted"))
    arrived = amount(row) if row.done else None
    said = joined_text([arrived, row.message])
    return [line(*start, said)] if start or said else []


def _failure(row: DownloadRow, width: int) -> list[Line]:
    error = row.error
    what = (error.message if error else None) or row.message or "no reason given"
    parts = [line(Span(what, "bad"))]
    if error is not None:
        parts += [line(Span(f"{label}: ", "muted"), text) for label, text in
                  (("Why", error.cause), ("Do", error.hint)) if text]  # fmt: skip
    return [row for part in parts for row in wrap_line(part, width, most=MOST_ROWS, indent=2)]
