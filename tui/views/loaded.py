"""The list of models that are here, loaded or not, one of them chosen."""

from __future__ import annotations

from dataclasses import dataclass

from appliance.client import EngineRow
from appliance.client.library import CatalogRow, names
from appliance.units import about, size
from tui import glyphs
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
    plain,
    width_of,
    wrap_line,
)
from tui.state import View
from tui.views.residents import facts, state_mark

MOST_ROWS = 3
"""Of each of what, why and what to do."""
_INDENT = 5

EMPTY = (
    "No model is here yet.",
    "",
    "Fetch one from another terminal:  appliance models pull MODEL",
    "Use one of another program:       appliance models import",
    "What there is:                    appliance models list",
)


@dataclass(frozen=True, slots=True)
class Shelf:
    """What the daemon said of the models on the disk."""

    models: tuple[CatalogRow, ...] | None = None
    """None: it has not answered yet."""
    pinned: tuple[str, ...] = ()
    """Names of the settings."""
    problem: str | None = None
    """Why the last question got no answer."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One model of the list."""

    ref: str
    engine: EngineRow | None
    """None: it is not loaded, and nobody wants it."""
    file: CatalogRow | None
    pinned: bool

    @property
    def resident(self) -> bool:
        """Its memory is taken, or is being taken or freed."""
        return self.engine is not None and self.engine.resident

    @property
    def serves(self) -> bool:
        """It can answer now."""
        return self.engine is not None and self.engine.serves

    @property
    def default(self) -> bool:
        """Requests that name no model go to it."""
        return self.engine is not None and bool(self.engine.default)


def entries(view: View, shelf: Shelf) -> tuple[Entry, ...]:
    """What the daemon holds, the default first, then what else is here; by name, so that no use moves one."""
    engines = {row.ref: row for row in (view.snapshot.engines if view.snapshot else ())}
    files = {row.ref: row for row in shelf.models or ()}
    here = {ref for ref, row in files.items() if row.state == "here" or row.loaded}
    found = [_entry(ref, engines.get(ref), files.get(ref), shelf) for ref in sorted({*engines, *here})]
    return tuple(sorted(found, key=lambda one: (not one.default, one.engine is None, one.ref)))


def _entry(ref: str, engine: EngineRow | None, file: CatalogRow | None, shelf: Shelf) -> Entry:
    told = engine.pinned if engine is not None else None
    return Entry(ref, engine, file, names(ref, shelf.pinned) if told is None else told)


def chosen(rows: tuple[Entry, ...], wanted: str | None) -> Entry | None:
    """The model with this ref, else the first one."""
    return next((row for row in rows if row.ref == wanted), rows[0] if rows else None)


def neighbour(rows: tuple[Entry, ...], wanted: str | None, step: int) -> str | None:
    """The ref `step` rows below (above) the chosen one; the list has two ends."""
    current = chosen(rows, wanted)
    return None if current is None else rows[max(0, min(len(rows) - 1, rows.index(current) + step))].ref


def title_line(view: View, shelf: Shelf, width: int) -> Line:
    """What this is, how many are loaded and how many are here, and what memory is free."""
    rows = entries(view, shelf)
    loaded = sum(row.resident for row in rows)
    rest = len(rows) - loaded
    said = [line(f"{loaded} loaded"), line(f"{rest} more here") if rest else ()]
    left = line(Span(" Models loaded", "strong"), "   ", *joined(said))
    return between(left, line(Span(f"{_free(view)} ", "muted")), width)


def _free(view: View) -> str:
    shot = view.snapshot
    if shot is None:
        return ""
    gpus = [gpu.free for gpu in shot.gpus if gpu.free is not None]
    gpu = f"GPU {size(sum(gpus))} · " if gpus else ""
    return f"{gpu}RAM {size(shot.host.ram_available)} free"


def entry_lines(view: View, shelf: Shelf, wanted: str | None, width: int, height: int) -> tuple[Line, ...]:
    """Exactly `height` lines; the chosen model is always among them. Old values are dimmed."""
    rows = entries(view, shelf)
    current = chosen(rows, wanted)
    lines, first, last = _above(shelf, bool(rows)), 0, 0
    for row in rows:
        block = _block(view, row, width, is_chosen=row is current)
        if row is current:
            first, last = len(lines), len(lines) + len(block)
        lines += block
    start = min(first, max(0, last - height)) if last > height else 0
    shown = [fit_line(one, width) for one in lines[start : start + height]]
    if view.dimmed:
        shown = [(Span(plain(one), "muted"),) for one in shown]
    return (*shown, *(((Span(" " * width),),) * (height - len(shown))))


def _above(shelf: Shelf, any_rows: bool) -> list[Line]:
    """What is to be said before the models: that the list is on its way, or why it is not there."""
    if shelf.problem is not None:
        return [
            line(Span(f" {glyphs.FAILED} The models on the disk can't be listed: {shelf.problem}", "bad")),
            (),
        ]
    if shelf.models is None:
        return [line(Span(f" {glyphs.BUSY} Asking which models are here …", "accent")), ()]
    return [] if any_rows else [(), *(line(Span(f"  {text}", "muted")) for text in EMPTY)]


def _block(view: View, row: Entry, width: int, *, is_chosen: bool) -> list[Line]:
    mark = Span(f" {glyphs.SELECTED} " if is_chosen else "   ", "accent")
    state = _state(row)
    glyph, _, word = state.text.partition(" ")
    tone: Tone = "strong" if is_chosen else "plain"
    marks = [word, "default" if row.default else "", "pinned" if row.pinned else ""]
    right = line(Span(" · ".join(filter(None, marks)) + " ", state.tone))
    name = crop(row.ref, max(16, width - width_of(right) - _INDENT - 12))
    file = line(Span(f"  {size(row.file.size)}", "muted")) if row.file is not None else ()
    head = between(line(mark, Span(glyph, state.tone), Span(f" {name}", tone), *file), right, width)
    return [
        head,
        *(fit_line((Span(" " * _INDENT), *one), width) for one in _details(view, row, width - _INDENT - 1)),
    ]


def _state(row: Entry) -> Span:
    if row.engine is not None:
        return state_mark(row.engine)
    return Span(f"{glyphs.STOPPED} not loaded", "muted")


def _details(view: View, row: Entry, width: int) -> list[Line]:
    engine, shot = row.engine, view.snapshot
    if engine is None or shot is None:
        return _about_file(view, row, width)
    if engine.state == "failed":
        parts = ((None, engine.error or "no reason given"), ("Why", engine.cause), ("Do", engine.hint))
        said = [_labelled(word, text) for word, text in parts if text]
        return [one for part in said for one in wrap_line(part, width, most=MOST_ROWS, indent=2)]
    told = [one for one in facts(shot, engine, view.moment) if plain(one) != "pinned"]  # the head says it
    adapters = ", ".join(one.name or "?" for one in engine.adapters)
    told += [line(f"with {adapters}")] if adapters else []
    if not any(told):
        return _about_file(view, row, width)
    return [joined_within(told, width)]


def _labelled(word: str | None, text: str) -> Line:
    return line(Span(text, "bad")) if word is None else line(Span(f"{word}: ", "muted"), text)


def _about_file(view: View, row: Entry, width: int) -> list[Line]:
    """Of one that is not loaded: where it would run, and when it was loaded last."""
    if row.file is None:
        return []
    fit = row.file.fits.text if row.file.fits is not None else None
    fits = f"Fits: {fit}" if fit else ""
    used = "" if row.file.used_at is None else f"loaded {about(view.moment - row.file.used_at)} ago"
    said = joined_within([line(text) for text in (fits, used) if text], width)
    return [line(*(Span(span.text, "muted") for span in said))] if said else []
