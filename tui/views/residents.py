"""Models beside the default one: a line each for the dashboard, and the words that other views share."""

from __future__ import annotations

from appliance.client import EngineRow, StatusSnapshot
from appliance.units import about
from tui import glyphs
from tui.frame import PanelView
from tui.lines import Line, Span, cells, fit, fit_line, joined, joined_within, line, safe, width_of
from tui.state import View
from tui.words import NA, ago, number, percent

MOST, MOST_COMPACT = 4, 3
"""Lines for other models on the dashboard; the list of models has no limit."""
_STATE = 10
"""Columns of the longest state, `◐ stopping`."""
_LEAST_NAME = 16
_GAPS = 3


def others_panel(view: View, width: int, compact: bool) -> PanelView:
    """A line of `width` columns for each other model; in the short form the Engine panel has them."""
    shot = view.snapshot
    rows = () if shot is None or compact else other_lines(view, width, MOST)
    loaded = sum(row.resident for row in shot.others) if shot is not None else 0
    return PanelView("Other models", rows, joined([line(f"{loaded} loaded"), line("m lists all")]))


def other_lines(view: View, width: int, most: int) -> tuple[Line, ...]:
    """At most `most` lines; the last one says how many models are left out."""
    shot = view.snapshot
    if shot is None or not shot.others:
        return ()
    others = sorted(shot.others, key=_rank)
    shown = others if len(others) <= most else others[: most - 1]
    told = [facts(shot, row, view.moment) for row in shown]
    name = _name_columns(shown, told, width)
    lines = [_line(row, said, name, width) for row, said in zip(shown, told, strict=True)]
    if len(shown) < len(others):
        rest = len(others) - len(shown)
        lines.append(
            line(Span(f"and {rest} more; ", "muted"), Span("m", "accent"), Span(" lists them", "muted"))
        )
    return tuple(lines)


def _rank(row: EngineRow) -> int:
    """What needs a look comes first; the order of the daemon is kept otherwise."""
    return 0 if row.state == "failed" else 1 if row.resident else 2


def _name_columns(rows: list[EngineRow], told: list[list[Line]], width: int) -> int:
    """As many as the longest name has, or as the facts leave; never less than a third of the line."""
    longest = max((cells(safe(row.ref)) for row in rows), default=0)
    facts_need = max((width_of(joined(one for one in said if one)) for said in told), default=0)
    return min(longest, max(_LEAST_NAME, width // 3, width - _STATE - _GAPS - facts_need))


def _line(row: EngineRow, told: list[Line], name: int, width: int) -> Line:
    head = line(*fit_line((state_mark(row),), _STATE), Span(f" {fit(row.ref, name)}  "))
    whole = (*head, *joined_within(told, width - _STATE - _GAPS - name))
    return whole if width_of(whole) <= width else fit_line(whole, width)


def state_mark(row: EngineRow) -> Span:
    """State as glyph and word; a model that is not loaded but asked for is `wanted`."""
    if row.state == "absent":
        return glyphs.mark("absent", "wanted" if row.queued else "not loaded")
    return glyphs.mark(row.state)


def facts(shot: StatusSnapshot, row: EngineRow, now: float) -> list[Line]:
    """What there is to say of it, what matters most first."""
    waiting = line(Span(f"{row.queued} waiting", "warn")) if row.queued else ()
    if row.state == "failed":
        return [line(Span(row.error or "no reason given", "bad")), waiting]
    if row.state in ("starting", "loading"):
        return [waiting, *progress(row, now)]
    if not row.serves:
        return [waiting]
    speed = line(f"{number(row.tokens_per_second, 1)} t/s") if row.tokens_per_second is not None else ()
    stay = stays(shot, row, now)
    first, last = (stay, ()) if row.makes_way else ((), stay)
    slots = line(f"slots {NA if row.slots_busy is None else row.slots_busy}/{number(row.parallel)}")
    pinned = line("pinned") if row.pinned else ()
    return [slots, waiting, first, pinned, line(place(row)), speed, last]


def place(row: EngineRow) -> str:
    """`GPU 19/19`, `CPU`, or `Vulkan0 19/19` for a device that is made of the CPU."""
    if row.n_layer is None or row.gpu_layers is None:
        return f"layers {NA}"
    if row.on_cpu:
        return "CPU"
    name = ", ".join(device.name for device in row.devices) if row.software else "GPU"
    return f"{name} {row.gpu_layers}/{row.n_layer + 1}"


def progress(row: EngineRow, now: float) -> list[Line]:
    """How far a load is, and how long it takes as far as that is known."""
    share = line(Span(percent(row.load_progress * 100), "accent")) if row.load_progress is not None else ()
    so_far = line(f"{ago(row.started_at, now)} so far") if row.started_at is not None else ()
    whole = line(f"takes ~{about(row.load_estimate_s)}") if row.load_estimate_s is not None else ()
    return [share, so_far, whole]


def stays(shot: StatusSnapshot, row: EngineRow, now: float) -> Line:
    """Until when it stays loaded; empty where no end is in sight."""
    if row.makes_way:
        return line(Span(f"makes way for {shot.makes_way_for(row) or 'another'}", "warn"))
    return () if row.unload_at is None else line(f"unloads in {about(row.unload_at - now)}")
