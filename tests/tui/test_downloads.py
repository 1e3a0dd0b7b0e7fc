"""The downloads' screen: each transfer's state, and keys that pause, resume and cancel the chosen one."""

from __future__ import annotations

from typing import Any

import pytest

from appliance.client import StatusSnapshot
from appliance.paths import Paths
from tests.client import documents
from tests.client.stub_daemon import StubDaemon
from tests.tui.screens import SIZES, Running, against, fixed
from tui.dashboard import Dashboard
from tui.downloads_screen import DownloadsScreen, at_stake
from tui.lines import plain, width_of
from tui.state import View
from tui.views.transfers import chosen, neighbour, transfer_lines
from tui.widgets.overlay import Question


def view(*rows: dict[str, Any]) -> View:
    return View(
        now=documents.NOW,
        snapshot=StatusSnapshot.parse(documents.normal() | {"downloads": list(rows)}),
    )


def text(*rows: dict[str, Any], width: int = 100, height: int = 20, wanted: str | None = None) -> str:
    lines = transfer_lines(view(*rows), wanted, width, height)
    assert len(lines) == height
    assert {width_of(line) for line in lines} == {width}
    return "\n".join(plain(line).rstrip() for line in lines)


async def open_them(on: Running) -> None:
    await on.press("d")
    await on.until("Downloads   ")
    assert isinstance(on.app.screen, DownloadsScreen)


@pytest.mark.parametrize("size", SIZES)
async def test_d_lists_them_at_every_size_and_escape_goes_back(size: tuple[int, int]) -> None:
    async with fixed(documents.downloads(), size) as on:
        await open_them(on)
        assert "2 active" not in on.text
        assert "3 active · 1 paused · 1 failed" in on.text
        assert "212.00 GiB free" in on.text
        for word in (
            "mistral-small-24b-instruct:Q4_K_M",
            "downloading",
            "43 %",
            "38.2 MiB/s",
            "3 m 24 s left",
        ):
            assert word in on.text
        for word in ("repairing", "The disk has no room", "Why: It needs 18.1 GiB", "Do: Free some space"):
            assert word in on.text
        assert "p Pause" in on.text
        assert "x Cancel" in on.text
        await on.press("escape")
        assert isinstance(on.app.screen, Dashboard)
        await on.press("d")
        await on.press("d")
        assert isinstance(on.app.screen, Dashboard)


async def test_without_any_it_says_how_to_start_one() -> None:
    async with fixed(documents.normal(), (80, 24)) as on:
        await open_them(on)
        assert "No downloads." in on.text
        assert "appliance models pull MODEL" in on.text
        assert "p Pause" not in on.text
        await on.press("p", "x", "space", "up", "down", "j", "k")
        assert isinstance(on.app.screen, DownloadsScreen)


async def test_keys_act_on_the_chosen_one(stub: StubDaemon, paths: Paths) -> None:
    stub.script.status["downloads"] = documents.downloads()["downloads"]
    async with against(paths, (80, 24)) as on:
        await open_them(on)
        await on.press("p")
        assert len(stub.asked("POST", "/api/downloads/1/pause")) == 1
        await on.press("j", "space")
        assert len(stub.asked("POST", "/api/downloads/2/pause")) == 1
        await on.press("down")
        await on.until("p Try again")
        await on.press("p")
        assert len(stub.asked("POST", "/api/downloads/3/resume")) == 1
        await on.press("down", "down")
        await on.until("p Resume")
        await on.press("p", "down")
        assert len(stub.asked("POST", "/api/downloads/5/resume")) == 1
        await on.press("p")
        assert stub.asked("POST", "/api/downloads/6/pause") == [], "what is done can't be paused"
        await on.press("home", "up", "p")
        assert len(stub.asked("POST", "/api/downloads/1/pause")) == 2
    assert stub.asked("DELETE", "/api/downloads/1") == []


async def test_x_asks_and_names_the_file_and_what_is_kept(stub: StubDaemon, paths: Paths) -> None:
    stub.script.status["downloads"] = documents.downloads()["downloads"]
    async with against(paths, (80, 24)) as on:
        await open_them(on)
        await on.press("x")
        assert isinstance(on.app.screen, Question)
        await on.until("Mistral-Small-Q4_K_M.gguf")
        assert "5.70 GiB of 13.30 GiB stay on this disk" in " ".join(on.text.split())
        await on.press("n")
        assert stub.asked("DELETE", "/api/downloads/1") == []
        await on.press("x", "y")
        assert len(stub.asked("DELETE", "/api/downloads/1")) == 1
        await on.press("end", "x")
        assert isinstance(on.app.screen, DownloadsScreen), "what has ended goes without a question"
        assert len(stub.asked("DELETE", "/api/downloads/7")) == 1


def test_what_a_cancel_costs_is_said_as_it_is() -> None:
    def said(**changes: Any) -> str:
        row = chosen(view(documents.download(**changes)), None)
        assert row is not None
        return at_stake(row)

    assert "goes on from there" in said()
    assert "starts over" in said(resumable=False)
    assert "nothing has arrived" in said(done=0)
    assert "(" not in said(file=None, done=None)


async def test_a_refusal_is_told_where_one_looks(stub: StubDaemon, paths: Paths) -> None:
    stub.script.status["downloads"] = [documents.download()]
    error = {"code": "failed", "message": "[/bad] It is slow to stop.", "hint": "Look again."}
    stub.script.answers["POST", "/api/downloads/1/pause"] = (500, {"error": error})
    async with against(paths, (80, 24)) as on:
        await open_them(on)
        await on.press("p")
        await on.until("It is slow to stop.")
        assert on.app.view.working is None


async def test_it_works_while_the_engine_loads(stub: StubDaemon, paths: Paths) -> None:
    stub.script.status["downloads"] = [documents.download()]
    stub.script.status["requests"]["running"] = []
    stub.script.status["queue"] |= {"running": 0, "waiting": 0, "lanes": {}}
    async with against(paths) as on:
        stub.script.held.clear()
        await on.pilot.press("r")
        await on.until("Restarting the engine")
        await on.pilot.press("d")
        await on.until("Downloads   ")
        await on.pilot.press("p")
        await on.pilot.pause()
        stub.script.held.set()
        await on.app.workers.wait_for_complete()
    assert len(stub.asked("POST", "/api/downloads/1/pause")) == 1


async def test_the_choice_stays_with_the_row_and_moves_on_when_it_is_gone(
    stub: StubDaemon, paths: Paths
) -> None:
    stub.script.status["downloads"] = documents.downloads()["downloads"]
    async with against(paths, (80, 24)) as on:
        await open_them(on)
        await on.press("down")
        stub.script.status["downloads"] = stub.script.status["downloads"][1:]
        await on.poll()
        await on.press("p")
        assert len(stub.asked("POST", "/api/downloads/2/pause")) == 1
        stub.script.status["downloads"] = []
        await on.poll()
        await on.until("No downloads.")


async def test_lost_contact_keeps_the_list_and_the_keys_do_nothing(stub: StubDaemon, paths: Paths) -> None:
    stub.script.status["downloads"] = [documents.download()]
    async with against(paths, (80, 24)) as on:
        await open_them(on)
        stub.stop()
        await on.poll()
        await on.until("Lost contact")
        assert "mistral-small" in on.text
        await on.press("p")
        assert isinstance(on.app.screen, DownloadsScreen)


def test_the_chosen_one_is_always_in_sight() -> None:
    rows = [documents.download(id=str(n), ref=f"model-{n}:Q4") for n in range(30)]
    for height in (3, 5, 10, 20):
        for n in (0, 7, 29):
            assert f"▸ ◐ model-{n}:Q4 " in text(*rows, height=height, wanted=str(n))


def test_choosing_stops_at_both_ends() -> None:
    both = view(documents.download(id="1"), documents.download(id="2"))
    steps = ((None, -1), (None, 1), ("2", 1), ("2", -1), ("gone", 1))
    assert [neighbour(both, wanted, step) for wanted, step in steps] == ["1", "2", "2", "1", "2"]
    assert neighbour(view(), "1", 1) is None


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({"phase": "a word of tomorrow"}, "a word of tomorrow"),
        ({"phase": ""}, "mistral"),
        ({"total": None}, "5.7/n/a GiB"),
        ({"done": 60 << 20, "total": 96 << 20}, "60.0/96.0 MiB"),
        ({"done": None}, "downloading"),
        ({"message": "the process 4711 is fetching it"}, "the process 4711 is fetching it"),
        ({"resumable": False}, "starts over after a stop"),
        ({"limit": 5 << 20}, "at most 5.0 MiB/s"),
        ({"phase": "failed", "finished": True}, "no reason given"),
        ({"phase": "failed", "finished": True, "message": "why"}, "why"),
        ({"phase": "done", "finished": True, "fetched": 8 << 20}, "8.0 MiB fetched to mend it"),
        ({"phase": "paused", "paused": True}, "paused"),
        ({"ref": "x" * 300}, "…"),
        ({"ref": "évil\x1b[2J\u202e\u200d[/b]:Q4"}, "évil"),
    ],
)
@pytest.mark.parametrize("width", [60, 80, 140])
def test_any_row_can_be_drawn(changes: dict[str, Any], shown: str, width: int) -> None:
    drawn = text(documents.download(rate=None, eta_s=None, **changes), width=width)
    assert shown in drawn
    assert "\x1b" not in drawn
    assert "\u202e" not in drawn


async def test_the_panel_leaves_out_what_was_cancelled_and_shows_what_is_paused() -> None:
    async with fixed(documents.downloads(), (140, 40)) as on:
        assert "3 active · 1 paused · 1 failed" in on.text
        assert "‖ phi-4:Q4_K_M" in on.text
        assert "llama-3.1-8b-instruct" not in on.text
        assert "d Downloads" in on.text


async def test_ascii_terminals_get_ascii() -> None:
    async with fixed(documents.downloads(), (80, 24), ascii_only=True) as on:
        await open_them(on)
        assert on.text.isascii()
