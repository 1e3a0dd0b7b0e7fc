"""What the screens show, as plain values: a snapshot of the appliance plus what the UI itself knows.

Everything here is pure. Widgets draw a `View`; the app makes a new one after each poll and each key.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from types import MappingProxyType
from typing import Literal

from appliance.client import NoteRow, StatusSnapshot
from appliance.errors import ApplianceError
from tui import glyphs
from tui.actions import ACTIONS, SCREENS, Action, Scope
from tui.events import Event, note_key
from tui.history import History
from tui.lines import Line, Span, between, crop, joined, line, width_of
from tui.words import NA, ago

MIN_WIDTH, MIN_HEIGHT = 60, 16
COMPACT_WIDTH, COMPACT_HEIGHT = 100, 30
"""Below either, panels stand one under the other in their short form."""

FRESH_S = 15.0
"""For so long an event stands before the notes that are there anyway."""

NoticeTone = Literal["bad", "warn", "accent", "plain", "muted"]
Phase = Literal["connecting", "empty", "stopped", "loading", "running", "failed"]


@dataclass(frozen=True, slots=True)
class Lost:
    """No contact with the daemon: since when (Unix time), and the three sentences of the error."""

    since: float
    message: str
    cause: str | None
    hint: str | None

    @classmethod
    def of(cls, error: ApplianceError, since: float) -> Lost:
        """From the error of the last try."""
        return cls(since, error.message, error.cause, error.hint)


@dataclass(frozen=True, slots=True)
class View:
    """All that a screen may show at one moment."""

    now: float
    """Unix time."""
    snapshot: StatusSnapshot | None = None
    """The last one that came; old when `lost` is set."""
    history: History = field(default_factory=History)
    lost: Lost | None = None
    frozen: bool = False
    version: str | None = None
    """The daemon's version when it is not ours."""
    taken: float | None = None
    """Unix time at which `snapshot` came."""
    since: Mapping[str, float] = field(default_factory=dict)
    """For each note that stands now (`note_key`): the earliest time that the daemon named for it."""
    events: tuple[Event, ...] = ()
    """Newest first."""
    working: str | None = None
    """The command that runs now, e.g. `Stopping the engine`."""
    working_since: float | None = None
    interval_s: float = 1.0
    zone: tzinfo | None = None
    """Time zone of clocks; None is that of this computer."""

    @property
    def phase(self) -> Phase:
        """Which dashboard is shown."""
        return phase(self.snapshot)

    @property
    def dimmed(self) -> bool:
        """True when the values are old."""
        return self.lost is not None

    @property
    def moment(self) -> float:
        """The time that ages are counted to: now, or when the last values came once contact is lost."""
        return self.taken if self.lost is not None and self.taken is not None else self.now

    def standing(self, note: NoteRow) -> float | None:
        """Since when a note stands (Unix time); None when the daemon does not say."""
        if note.since is None or self.snapshot is None:
            return note.since
        return self.since.get(note_key(self.snapshot, note), note.since)

    def clock(self, moment: float | None) -> str:
        """A Unix time as `12:04:29`."""
        if moment is None:
            return NA
        try:
            return datetime.fromtimestamp(moment, self.zone).strftime("%H:%M:%S")
        except (OverflowError, OSError, ValueError):
            return NA


def phase(shot: StatusSnapshot | None) -> Phase:
    """Which dashboard fits a snapshot."""
    if shot is None:
        return "connecting"
    engine = shot.engine
    if engine is None:
        return "empty" if shot.model is None else "stopped"
    match engine.state:
        case "failed":
            return "failed"
        case "starting" | "loading":
            return "loading"
        case "ready" | "busy" | "stopping":
            return "running"
        case _:
            return "stopped"


def standing(known: Mapping[str, float], shot: StatusSnapshot) -> dict[str, float]:
    """Since when each note stands; a daemon that names a later time for one does not make it younger."""
    dated = {note_key(shot, note): note.since for note in shot.notes if note.since is not None}
    return {key: min(since, known.get(key, since)) for key, since in dated.items()}


def engine_mark(shot: StatusSnapshot | None) -> Span:
    """The engine's state as glyph and word."""
    engine = shot.engine if shot else None
    if engine is not None:
        return glyphs.mark({"absent": "stopped"}.get(engine.state, engine.state))
    if shot is None:
        return glyphs.mark("connecting")
    return Span(f"{glyphs.STOPPED} no model" if shot.model is None else f"{glyphs.STOPPED} stopped", "muted")


def is_compact(width: int, height: int) -> bool:
    """True when the short forms are used."""
    return width < COMPACT_WIDTH or height < COMPACT_HEIGHT


def is_tiny(width: int, height: int) -> bool:
    """True when there is room for one message only."""
    return width < MIN_WIDTH or height < MIN_HEIGHT


def header(view: View, width: int, current: str = "dash") -> Line:
    """Row 1: the screens, and the two facts that always matter: engine state and routing policy."""
    name = () if width < COMPACT_WIDTH else (Span("appliance  ", "strong"),)
    tabs = [
        Span(f"[{s.key} {s.label}]", "strong") if s.id == current else Span(f"{s.key} {s.label}", "muted")
        for s in SCREENS
    ]
    left = line(" ", *name, *joined([(tab,) for tab in tabs], "  "))
    return between(left, (*_facts(view), Span(" ")), width)


def _facts(view: View) -> Line:
    if view.lost is not None:
        return (Span(f"{glyphs.FAILED} daemon lost", "bad"),)
    if view.snapshot is None:
        return (glyphs.mark("connecting"),)
    policy = (view.snapshot.policy or f"policy {NA}").replace("-", " ")
    failed = Span(f"{glyphs.FAILED} engine failed", "bad")
    return joined([(failed if view.phase == "failed" else engine_mark(view.snapshot),), (Span(policy),)])


def notice(view: View, width: int) -> Line:
    """The row above the footer: the one thing to know now; lost contact comes before anything else."""
    text, tone = _notice(view)
    return (Span(crop(f" {text}", width), tone),)


def _notice(view: View) -> tuple[str, NoticeTone]:
    if view.lost is not None:
        since = ago(view.lost.since, view.now)
        told = " ".join(part for part in (view.lost.hint, view.lost.message) if part)
        return f"{glyphs.FAILED} Lost contact {since} ago, retrying. {told}", "bad"
    if view.frozen:
        return f"‖ Frozen at {view.clock(view.now)}. Space goes on.", "accent"
    if view.working is not None:
        return f"{glyphs.BUSY} {working(view)} …", "accent"
    newest = view.events[0] if view.events else None
    if newest is not None and view.now - newest.at < FRESH_S:
        return _told(view, newest)
    if view.version is not None:
        todo = "Restart it: appliance down, then appliance up"
        return f"! The daemon has version {view.version}, this is another one. {todo}", "warn"
    notes = view.snapshot.notes if view.snapshot else ()
    if notes:
        first = " ".join(part for part in (notes[0].detail or notes[0].code, notes[0].todo) if part)
        return f"! {first}" + (f"  ({len(notes)} notes, n lists them)" if len(notes) > 1 else ""), "warn"
    return _told(view, newest) if newest is not None else ("", "muted")


def working(view: View) -> str:
    """The command under way and for how long, e.g. `Restarting the engine, 4.0 s so far`."""
    since = view.working_since
    spent = "" if since is None or view.now - since < 1 else f", {ago(since, view.now)} so far"
    return f"{view.working}{spent}"


def _told(view: View, event: Event) -> tuple[str, NoticeTone]:
    return (
        f"{glyphs.SELECTED} {view.clock(event.at)}  {event.text}",
        "bad" if event.tone == "bad" else "plain",
    )


def labels(view: View, scope: Scope = "dash") -> Sequence[tuple[Action, str]]:
    """The footer's actions with the word that fits now; those that can't be used now are left out."""
    stopped = view.phase in ("stopped", "failed", "empty", "connecting")
    words = {
        "engine.toggle": "Start" if stopped else "Stop",
        "display.freeze": "Go on" if view.frozen else "Freeze",
    }
    here = [a for a in ACTIONS if a.scope in (scope, "app")]
    return [(a, words.get(a.id, a.label)) for a in here if a.in_footer and is_possible(a, view)]


def is_possible(action: Action, view: View) -> bool:
    """False when an action needs something that is not there: the daemon, a model."""
    if action.needs_daemon and (view.lost is not None or view.snapshot is None):
        return False
    return action.id not in ("engine.toggle", "engine.restart") or view.phase != "empty"


def footer(
    view: View,
    width: int,
    scope: Scope = "dash",
    words: Mapping[str, str] = MappingProxyType({}),
) -> Line:
    """The last row: what can be done here at the left, what can be done everywhere at the right.

    `words`: what an action is called now, by id; an empty one leaves it out.
    """
    here: list[Span] = [] if scope == "dash" else [Span(" esc", "accent"), Span(" Back ")]
    everywhere: list[Span] = []
    for action, word in labels(view, scope):
        word = words.get(action.id, word)
        if not word:
            continue
        spans = everywhere if action.scope == "app" else here
        spans.extend((Span(f" {action.key_word}", "accent"), Span(f" {word} ")))
    right = tuple(everywhere)
    while here and width_of(tuple(here)) + width_of(right) > width:
        del here[-2:]
    return between(tuple(here), right, width)


def tiny(view: View, width: int, height: int) -> str:
    """What stands in a terminal that is too small."""
    return f"needs {MIN_WIDTH}x{MIN_HEIGHT}, have {width}x{height} · {_facts(view)[0].text}"


def farewell(view: View) -> str:
    """The line that stays in the terminal after the UI was left."""
    if view.lost is not None or view.snapshot is None:
        return "The appliance daemon does not answer. Start it with: appliance up"
    url = view.snapshot.gateway_url or view.snapshot.daemon.url
    where = f" at {url}" if url else ""
    return f"The appliance keeps serving{where}. Stop it with: appliance down"


def wall_clock() -> float:
    """Unix time; tests give the app another clock."""
    return time.time()
