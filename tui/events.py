"""What happened between two snapshots, each in one sentence, for the notice row and the list of notices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from appliance.client import StatusSnapshot
from tui.lines import Tone
from tui.words import reason

KEPT = 100


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
        *_engine(before, after, now),
    )


def _engine(before: StatusSnapshot, after: StatusSnapshot, now: float) -> Iterator[Event]:
    old, new = before.engine, after.engine
    if new is None:
        if old is not None:
            yield Event(now, "The engine is stopped.")
        return
    if old is not None and old.state == new.state:
        if (new.restarts or 0) > (old.restarts or 0):
            yield Event(now, f"The engine was restarted (restart {new.restarts}).", "warn")
        return
    was_on = old is not None and old.state in ("ready", "busy")
    if new.state == "ready" and not was_on:
        yield Event(now, f"The engine is ready: {new.model or 'model n/a'}.", "ok")
    elif new.state == "failed":
        why = " ".join(part for part in (new.error, new.cause) if part)
        yield Event(now, f"The engine failed: {why or 'no reason given'}", "bad")
    elif new.state in ("starting", "loading") and (old is None or old.state not in ("starting", "loading")):
        yield Event(now, f"The engine is loading {new.model or 'a model'}.")
    elif new.state in ("absent", "stopped"):
        yield Event(now, "The engine is stopped.")


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
    known = {note.code for note in before.notes}
    current = {note.code for note in after.notes}
    for note in after.notes:
        if note.code not in known:
            yield Event(now, f"{note.code}: {note.detail or note.todo or ''}", "warn")
    for code in sorted(known - current):
        yield Event(now, f"{code}: over.", "ok")
