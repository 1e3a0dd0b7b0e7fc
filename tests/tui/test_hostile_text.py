"""Text written by strangers, in every field that is shown: no exception, no control byte, no markup."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from textual.widgets import Log

from appliance.paths import Paths
from tests.client import documents
from tests.client.stub_daemon import StubDaemon
from tests.tui.screens import Running, against, fixed, running
from tui.log_screen import LogScreen
from tui.picture import FixedDoor

HOSTILE = {
    "markup": "[/foo] [/ [link='x [@click=app.quit]quit[/] [b]bold",
    "escapes": "\x1b]52;c;ZXZpbA==\x07\x1b[2J\x1b[?1049l\x9b31m\x90q\x00\x08\r",
    "bidi": "abc\u202edef\u2066ghi\u200f\ufeff\u2028line\u2029par",
    "long": "x" * 10_000,
    "wide": "模型" * 200 + "👩‍👩‍👧‍👦🏳️‍🌈",
    "combining": "Z" + "\u0301\u0336" * 500 + "algo",
    "surrogate": "\ud800 lone \udfff",
    "newlines": "a\nb\r\nc\td\x0be\x0cf\x85g",
    "empty": "",
}
FORBIDDEN = ("Cc", "Cs")


def poisoned(value: Any, text: str, key: str = "") -> Any:
    """The document with every text replaced, but for states and phases, which decide what is drawn."""
    if isinstance(value, dict):
        return {name: poisoned(inner, text, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [poisoned(inner, text, key) for inner in value]
    if isinstance(value, str) and key not in ("state", "phase", "thermal"):
        return text
    return value


def check(on: Running) -> None:
    """Nothing but visible characters, and every row as wide as the terminal or less."""
    for row in on.text.split("\n"):
        bad = [char for char in row if unicodedata.category(char) in FORBIDDEN]
        assert bad == []
        assert not any("\u202a" <= char <= "\u202e" or "\u2066" <= char <= "\u2069" for char in row)


DOCUMENTS = (
    documents.normal,
    documents.several,
    documents.loading,
    documents.failed,
    documents.cpu_only,
    documents.empty,
)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
async def test_in_every_field_of_the_status(text: str) -> None:
    now: dict[str, Any] = {}
    async with running(lambda: FixedDoor(now), (100, 30), first_poll=False) as on:
        for kind in DOCUMENTS:
            now.clear()
            now.update(poisoned(kind(), text))
            await on.poll()
            check(on)
        await on.press("n")
        check(on)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
async def test_in_states_events_errors_and_logs(text: str, stub: StubDaemon, paths: Paths) -> None:
    status = stub.script.status
    error = {"code": "failed", "message": text, "cause": text, "hint": text}
    stub.script.answers["POST", "/api/engine/restart"] = (500, {"error": error})
    stub.script.logs = [text] * 5
    async with against(paths, (80, 24)) as on:
        status["engines"][0] |= {"state": text, "error": text}
        status |= {"thermal": text, "notes": [{"code": text, "detail": text, "todo": text}], "policy": text}
        status["requests"] = {
            "running": [],
            "recent": [{"request_id": text, "route": "remote", "reason": text}],
        }
        status["queue"]["running"] = 0
        await on.poll()
        check(on)
        await on.press("r")  # fails with the text in a toast
        check(on)
        await on.press("l")
        screen = on.app.screen
        assert isinstance(screen, LogScreen)
        await screen.follow()
        await on.pilot.pause()
        assert screen.query_one(Log).line_count >= 5
        check(on)


async def test_markup_is_shown_as_it_is() -> None:
    document = documents.normal()
    document["model"]["name"] = "[b]bold[/b] [@click=app.quit]x"
    async with fixed(document) as on:
        assert "[b]bold[/b] [@click=app.quit]x" in on.text
