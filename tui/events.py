"""What happened between two snapshots, each in one sentence, for the notice row and the list of notices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from appliance.client import EngineRow, NoteRow, StatusSnapshot
from tui.lines import Tone
from tui.words import reason

KEPT = 100
_OFF = ("absent", "stopped")
_COMING = ("starting", "loading")


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened; `at` is Unix time."""

    at: float
    text: str
    tone: Tone = "plain"


def between(before: StatusSnapshot | None, after: StatusSnapshot, now: float) -> tuple[Event, ...]:
    """The events that lead from one snapshot to the next, newest last; none without a first one."""
    if before is None:
        return ()
    return (
        *_downloads(before, after, now),
        *_requests(before, after, now),
        *_heat(before, after, now),
        *_notes(before, after, now),
        *_engines(before, after, now),
    )


def _engines(before: StatusSnapshot, after: StatusSnapshot, now: float) -> Iterator[Event]:
    """Of each model; where there is but one, it is `the engine`."""
    old, new = _by_ref(before), _by_ref(after)
    refs = tuple(dict.fromkeys([*old, *new]))
    for ref in refs:
        yield from _engine(ref, len(refs) == 1, old.get(ref), new.get(ref), now)
    yield from _default(before, after, now)


def _by_ref(shot: StatusSnapshot) -> dict[str, EngineRow]:
    return {row.ref: row for row in shot.engines}


def _engine(
    ref: str, alone: bool, old: EngineRow | None, new: EngineRow | None, now: float
) -> Iterator[Event]:
    name, was = "The engine" if alone else ref, old.state if old is not None else None
    if new is None or new.state in _OFF:
        if was is not None and was not in _OFF:
            yield Event(now, "The engine is stopped." if alone else f"{ref} was unloaded.")
        return
    if old is not None and (new.restarts or 0) > (old.restarts or 0) and new.state != "failed":
        why = f": {new.crash.message}" if new.crash is not None and new.crash.message else "."
        yield Event(now, f"{name} was restarted (restart {new.restarts}){why}", "warn")
    elif new.state == was:
        return
    elif new.state == "ready" and was != "busy":
        yield Event(now, f"The engine is ready: {ref}." if alone else f"{ref} is ready.", "ok")
    elif new.state == "failed":
        why = " ".join(part for part in (new.error, new.cause) if part)
        yield Event(now, f"{name} failed: {why or 'no reason given'}", "bad")
    elif new.state in _COMING and was not in _COMING:
        yield Event(now, f"The engine is loading {ref}." if alone else f"{ref} is being loaded.")


def _default(before: StatusSnapshot, after: StatusSnapshot, now: float) -> Iterator[Event]:
    """Another model gets the requests that name none."""
    old, new = (next((row.ref for row in shot.engines if row.default), None) for shot in (before, after))
    if old is not None and new is not None and old != new:
        yield Event(now, f"The default model is {new} now, was {old}.")


def _requests(before: StatusSnapshot, after: StatusSnapshot, now: float) -> Iterator[Event]:
    known = {row.request_id for row in before.recent}
    for row in reversed(after.recent):
        if row.request_id in known:
            continue
        if row.route == "remote":
            yield Event(now, f"Sent to remote: {reason(row.reason) or 'no reason given'}.")
        elif (row.status or 0) >= 500 or row.status == 429:
            yield Event(
                now, f"A request ended with {row.status}: {reason(row.reason) or 'see the log'}.", "warn"
            )


def _heat(before: StatusSnapshot, after: StatusSnapshot, now: float) -> Iterator[Event]:
    if before.thermal == after.thermal or after.thermal is None:
        return
    tone: Tone = {"throttled": "warn", "critical": "bad"}.get(after.thermal, "plain")  # type: ignore[assignment]
    detail = f": {after.thermal_message}" if after.thermal_message else "."
    yield Event(now, f"Heat is {after.thermal}, was {before.thermal or 'n/a'}{detail}", tone)


def _downloads(before: StatusSnapshot, after: StatusSnapshot, now: float) -> Iterator[Event]:
    phases = {row.id: row.phase for row in before.downloads}
    for row in after.downloads:
        if phases.get(row.id) == row.phase:
            continue
        if row.phase == "done":
            yield Event(now, f"Downloaded and verified: {row.ref}.", "ok")
        elif row.phase == "failed":
            yield Event(now, f"The download of {row.ref} failed: {row.message or 'no reason given'}", "bad")
        elif row.phase in ("paused", "cancelled"):
            yield Event(now, f"The download of {row.ref} is {row.phase}.")


def _notes(before: StatusSnapshot, after: StatusSnapshot, now: float) -> Iterator[Event]:
    known, current = ({note_key(shot, note): note for note in shot.notes} for shot in (before, after))
    for key, note in current.items():
        if key not in known:
            yield Event(now, f"{note.code}: {note.detail or note.todo or ''}", "warn")
    for key in sorted(known.keys() - current.keys()):
        yield Event(now, f"{key}: over.", "ok")


def note_key(shot: StatusSnapshot, note: NoteRow) -> str:
    """What tells a note from others: its code, and the model that its detail begins with."""
    named = (note.detail or "").partition(": ")[0]
    return f"{note.code} of {named}" if any(row.ref == named for row in shot.engines) else note.code
