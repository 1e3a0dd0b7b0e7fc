"""The rows around the panels, and what is known about what can be done."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC
from typing import Any, get_args

import pytest

from appliance.client import StatusSnapshot
from appliance.errors import NoDaemon
from tests.client import documents
from tui import state
from tui.actions import ACTIONS, Scope
from tui.boxes import help_lines, notice_lines
from tui.events import Event
from tui.history import KEPT, History
from tui.lines import plain, width_of
from tui.state import Lost, View

LOST = Lost.of(NoDaemon("No daemon.", cause="It ended.", hint="Start it."), documents.NOW - 4)


def view(document: dict[str, Any] | None = None, **changes: Any) -> View:
    """A view of a document."""
    shot = StatusSnapshot.parse(documents.normal() if document is None else document)
    return replace(View(documents.NOW, snapshot=shot, zone=UTC), **changes)


def with_engine(engine_state: str) -> dict[str, Any]:
    """The normal document with its engine in another state."""
    document = documents.normal()
    document["engines"][0]["state"] = engine_state
    return document


@pytest.mark.parametrize(
    ("document", "phase", "words"),
    [
        (documents.normal(), "running", "● ready"),
        (documents.empty(), "empty", "○ no model"),
        (documents.loading(), "loading", "◐ loading"),
        (documents.failed(), "failed", "✖ engine failed"),
        (with_engine("busy"), "running", "● busy"),
        (with_engine("stopping"), "running", "◐ stopping"),
        (with_engine("absent"), "stopped", "○ stopped"),
        (documents.normal() | {"engines": []}, "stopped", "○ stopped"),
        (with_engine("from tomorrow"), "stopped", "○ from tomorrow"),
    ],
)
def test_the_header_says_the_engines_state(document: dict[str, Any], phase: str, words: str) -> None:
    shown = view(document)
    assert shown.phase == phase
    assert plain(state.header(shown, 100)).endswith(f"{words} · local first ")


def test_the_header_before_and_after_contact() -> None:
    assert "◐ connecting" in plain(state.header(View(documents.NOW), 80))
    assert "✖ daemon lost" in plain(state.header(view(lost=LOST), 80))
    assert "policy n/a" in plain(state.header(view({}), 80))


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_header_and_footer_fill_the_row(width: int) -> None:
    assert width_of(state.header(view(), width)) == width
    footer = plain(state.footer(view(), width))
    assert len(footer) == width
    assert footer.rstrip().endswith("? Help  q Quit  ^p Commands")


def test_the_footer_says_what_can_be_done_now() -> None:
    assert " s Stop " in plain(state.footer(view(), 100))
    assert " s Start " in plain(state.footer(view(with_engine("absent")), 100))
    assert " s " not in plain(state.footer(view(documents.empty()), 100))
    lost = plain(state.footer(view(lost=LOST), 100))
    assert "Restart" not in lost
    assert "q Quit" in lost
    assert "space Go on" in plain(state.footer(view(frozen=True), 110))


def test_the_notice_says_the_most_urgent_thing() -> None:
    event = Event(documents.NOW - 5, "Sent to remote: over local context.")
    everything = view(
        documents.cpu_only(), lost=LOST, frozen=True, working="Stopping", version="9", events=(event,)
    )
    assert "Lost contact 4.0 s ago, retrying. Start it. No daemon." in plain(state.notice(everything, 100))
    for changes, expected in (
        ({"lost": None}, "Frozen at 09:04:29"),
        ({"frozen": False}, "Stopping …"),
        ({"working": None}, "09:04:24  Sent to remote: over local context."),
        ({"events": ()}, "The daemon has version 9"),
        ({"version": None}, "! NVML library not found Install an engine"),
        ({"snapshot": None}, ""),
    ):
        everything = replace(everything, **changes)
        assert expected in plain(state.notice(everything, 100))
    assert plain(state.notice(everything, 100)).strip() == ""


def test_an_old_event_gives_way_to_a_note_but_not_to_nothing() -> None:
    old = (Event(documents.NOW - 60, "The engine is ready."),)
    assert "NVML" in plain(state.notice(view(documents.cpu_only(), events=old), 100))
    assert "The engine is ready." in plain(state.notice(view(events=old), 100))


def test_every_action_is_in_the_help_and_has_one_key() -> None:
    for scope in get_args(Scope):
        shown = "\n".join(map(plain, help_lines(200, scope)))
        here = [action for action in ACTIONS if action.scope in (scope, "app")]
        assert all(action.help in shown for action in here)
        keys = [key for action in here for key in action.key.split(",")]
        assert len(set(keys)) == len(keys)
    assert len({action.id for action in ACTIONS}) == len(ACTIONS)


def test_the_notice_list_has_notes_with_what_to_do_then_events() -> None:
    shown = view(documents.cpu_only(), events=(Event(documents.NOW, "It happened."),))
    text = "\n".join(map(plain, notice_lines(shown, 92)))
    assert "no_gpu_engine  NVML library not found  (for 1 m 00 s)" in text
    assert text.index("appliance engines install cuda") < text.index("09:04:29  It happened.")
    assert plain(notice_lines(view(), 92)[0]) == "Nothing to report."


def test_a_command_under_way_says_for_how_long() -> None:
    shown = view(working="Restarting the engine", working_since=documents.NOW - 4)
    assert "◐ Restarting the engine, 4.0 s so far …" in plain(state.notice(shown, 80))


def test_ages_stand_still_without_contact() -> None:
    assert view(taken=documents.NOW - 9, lost=LOST).moment == documents.NOW - 9
    assert view(taken=documents.NOW - 9).moment == documents.NOW


def test_a_note_never_becomes_younger_and_forgets_when_it_is_over() -> None:
    def shot(*since: float | None) -> StatusSnapshot:
        notes = [{"code": f"n{at}", "since": moment} for at, moment in enumerate(since)]
        return StatusSnapshot.parse(documents.normal() | {"notes": notes})

    first = state.standing({}, shot(100.0, 200.0, None))
    assert first == {"n0": 100.0, "n1": 200.0}
    later = state.standing(first, shot(150.0))
    assert later == {"n0": 100.0}
    assert state.standing(later, shot()) == {}


def test_tiny_terminals_are_told_what_is_needed() -> None:
    assert state.is_tiny(59, 40)
    assert state.is_tiny(100, 15)
    assert not state.is_tiny(60, 16)
    assert state.tiny(view(), 48, 12) == "needs 60x16, have 48x12 · ● ready"


def test_the_farewell_says_that_it_keeps_serving_or_that_it_is_gone() -> None:
    assert "keeps serving at http://127.0.0.1:8417/v1" in state.farewell(view())
    assert "appliance up" in state.farewell(view(lost=LOST))
    assert "appliance up" in state.farewell(View(documents.NOW))


def test_a_clock_that_cannot_be_read_is_unknown() -> None:
    shown = view()
    assert shown.clock(0) == "00:00:00"
    assert shown.clock(None) == shown.clock(1e30) == shown.clock(float("nan")) == "n/a"


def test_history_keeps_gaps_and_a_bound() -> None:
    shot = StatusSnapshot.parse(documents.normal())
    unknown = StatusSnapshot.parse(documents.normal() | {"gpus": []})
    history = History().add(shot).add(None).add(unknown).add(shot)
    assert history.get("cpu") == (62.0, None, 62.0, 62.0)
    assert history.get("GPU-0.temperature") == (71.0, None, None, 71.0)
    assert history.get("nothing") == ()
    for _ in range(KEPT + 5):
        history = history.add(unknown)
    assert len(history.get("cpu")) == KEPT
    assert history.get("GPU-0.temperature") == ()
