"""Facts that were shown cut, too young or under the wrong word."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client import documents
from tests.tui.test_state import view
from tests.tui.test_views import text
from tui.lines import plain
from tui.views.notes import notes_panel
from tui.views.requests import requests_panel
from tui.views.route import route_panel


def test_a_long_remedy_is_wrapped_not_cut() -> None:
    document = documents.cpu_only()
    command = "pip install --extra-index-url https://wheels.example/cu130 llama-appliance[cuda] xllamacpp"
    document["notes"][0]["todo"] = (
        f"Install an engine that can use this graphics card, for example: {command}"
    )
    panel = notes_panel(view(document), 96, compact=False)
    words = " ".join(plain(row).strip() for row in panel.lines)
    assert command in words
    assert all(len(plain(row)) <= 96 for row in panel.lines)
    assert "…" not in words


def test_a_note_keeps_its_age_and_has_none_without_a_start() -> None:
    document = documents.cpu_only()
    document["notes"][0]["since"] = documents.NOW - 2
    standing = {"no_gpu_engine": documents.NOW - 60}
    assert "(for 1 m 00 s)" in text(notes_panel(view(document, since=standing), 96, compact=False))
    document["notes"][0]["since"] = None
    assert "(for" not in text(notes_panel(view(document, since=standing), 96, compact=False))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"route": "none", "tokens_out": None, "ttft_ms": None}, "waiting"),
        ({"route": "local", "tokens_out": None, "ttft_ms": None}, "running"),
        ({"route": "remote", "tokens_out": None, "ttft_ms": None}, "running"),
        ({"route": "local", "tokens_out": None, "ttft_ms": 90.0}, "streaming"),
        ({"route": "local", "tokens_out": 3, "ttft_ms": 90.0}, "streaming"),
    ],
)
def test_a_request_under_way_says_what_it_does(changes: dict[str, Any], words: str) -> None:
    document = documents.normal()
    document["requests"]["running"][0] |= changes
    first = plain(requests_panel(view(document), 96, compact=False).lines[1])
    assert first.rstrip().endswith(f"…  {words}")
    assert ("–" in first.split()[1]) == (changes["route"] == "none")


def test_todays_numbers_are_never_cut() -> None:
    document = documents.normal() | {"today": {"local": 12_132, "remote": 1_209, "errors": 112}}
    rows = [plain(row) for row in route_panel(view(document), 38).lines]
    assert "Today    12 132 local · 1 209 remote" in rows
    assert "         112 err" in rows
    assert "Today    12 132 local · 1 209 remote · 112 err" in text(route_panel(view(document), 60))
