"""Each key does what the footer says, at every size, against a daemon that records what it was asked."""

from __future__ import annotations

import pytest
from textual.widgets import Log

from appliance.paths import Paths
from tests.client import documents
from tests.client.stub_daemon import StubDaemon
from tests.tui.screens import SIZES, against, fixed, running
from tui.dashboard import Dashboard
from tui.log_screen import LogScreen
from tui.picture import FixedDoor
from tui.widgets.overlay import Overlay, Question


def quiet(stub: StubDaemon) -> None:
    """No request is running."""
    stub.script.status["requests"]["running"] = []
    stub.script.status["queue"] |= {"running": 0, "waiting": 0, "lanes": {}}


async def test_question_mark_opens_help_and_escape_closes_it() -> None:
    async with fixed(documents.normal()) as on:
        await on.press("question_mark")
        await on.until("Stop all engines, or start the default one again.")
        assert "Leave the UI. The appliance keeps serving." in on.text
        await on.press("escape")
        assert isinstance(on.app.screen, Dashboard)


async def test_q_leaves_with_code_0(stub: StubDaemon, paths: Paths) -> None:
    async with against(paths) as on:
        await on.pilot.press("q")
    assert on.app.return_code == 0
    assert {call.method for call in stub.script.calls} == {"GET"}


@pytest.mark.parametrize("size", SIZES)
async def test_every_key_works_at_every_size(size: tuple[int, int], stub: StubDaemon, paths: Paths) -> None:
    async with against(paths, size) as on:
        before = on.text
        for opener, shown in (
            ("question_mark", "Leave the UI."),
            ("n", "Notices"),
            ("l", "Engine log"),
            ("r", "y  yes"),
        ):
            await on.press(opener)
            await on.until(shown)
            await on.press("escape")
            await on.until(before)
        await on.press("space", "space", "s", "y")
        assert len(stub.asked("POST", "/api/engine/stop")) == 1
        await on.press("r", "y")
        assert len(stub.asked("POST", "/api/engine/restart")) == 1
        await on.pilot.press("q")
    assert on.app.return_code == 0


@pytest.mark.parametrize("opener", ["question_mark", "n", "l"])
async def test_q_leaves_or_closes_from_everywhere(opener: str) -> None:
    async with fixed(documents.normal()) as on:
        await on.press(opener)
        await on.pilot.press("q")
        await on.pilot.pause()
        if on.app.is_running and opener != "l":
            assert isinstance(on.app.screen, Dashboard)
            await on.pilot.press("q")
    assert on.app.return_code == 0


async def test_n_lists_notes_and_what_to_do() -> None:
    async with fixed(documents.cpu_only()) as on:
        await on.press("n")
        assert "appliance engines install cuda" in on.text
        await on.press("n")
        assert isinstance(on.app.screen, Dashboard)


async def test_s_stops_the_engine(stub: StubDaemon, paths: Paths) -> None:
    quiet(stub)
    async with against(paths) as on:
        await on.press("s")
        assert len(stub.asked("POST", "/api/engine/stop")) == 1
        assert on.app.view.working is None


async def test_s_asks_while_a_request_is_running(stub: StubDaemon, paths: Paths) -> None:
    async with against(paths) as on:
        await on.press("s")
        assert isinstance(on.app.screen, Question)
        assert "1 running request would be cut off." in on.text
        await on.press("n")
        assert stub.asked("POST", "/api/engine/stop") == []
        await on.press("s", "y")
        assert len(stub.asked("POST", "/api/engine/stop")) == 1


async def test_s_says_how_many_engines_it_stops(stub: StubDaemon, paths: Paths) -> None:
    stub.script.status["engines"] = documents.several()["engines"]
    async with against(paths) as on:
        await on.press("s")
        await on.until("Stop all 3 engines?")
        await on.press("y")
        assert len(stub.asked("POST", "/api/engine/stop")) == 1


async def test_r_asks_only_for_the_requests_of_the_default(stub: StubDaemon, paths: Paths) -> None:
    stub.script.status["engines"] = documents.several()["engines"]
    async with against(paths) as on:
        await on.press("r")
        await on.until(f"1 running request of {documents.REF} would be cut off.")
        await on.press("n")
        stub.script.status["engines"][0] |= {"wanted": 0, "waiting": 0}
        await on.poll()
        await on.press("r")
        assert len(stub.asked("POST", "/api/engine/restart")) == 1


@pytest.mark.parametrize("engines", [[], [{"id": documents.REF, "model": documents.REF, "state": "absent"}]])
async def test_s_starts_a_stopped_engine_with_the_same_wishes(
    stub: StubDaemon, paths: Paths, engines: list[dict[str, str]]
) -> None:
    quiet(stub)
    stub.script.status["engines"] = engines
    async with against(paths) as on:
        assert "s Start" in on.text
        await on.press("s")
        assert len(stub.asked("POST", "/api/engine/restart")) == 1
        assert stub.asked("POST", f"/api/models/{documents.REF}/load") == []


async def test_s_tries_a_failed_engine_again(stub: StubDaemon, paths: Paths) -> None:
    stub.script.status |= documents.failed() | {"daemon": stub.script.status["daemon"]}
    async with against(paths) as on:
        await on.press("s")
        assert len(stub.asked("POST", "/api/engine/restart")) == 1


async def test_the_question_tells_running_from_waiting(stub: StubDaemon, paths: Paths) -> None:
    async with against(paths) as on:
        rows = stub.script.status["requests"]["running"]
        rows += [rows[0] | {"request_id": f"q{n}", "route": "none", "tokens_out": None} for n in range(2)]
        rows += [rows[0] | {"request_id": "away", "route": "remote"}]
        await on.poll()
        await on.press("s")
        await on.until("1 running request would be cut off.")
        assert "2 waiting requests would have to wait longer" in on.text


async def test_a_key_during_a_command_says_what_is_under_way(stub: StubDaemon, paths: Paths) -> None:
    quiet(stub)
    async with against(paths) as on:
        stub.script.held.clear()
        await on.pilot.press("r")
        await on.until("Restarting the engine …")
        on.clock.now += 12
        await on.pilot.press("s")
        await on.until("command can come after it.")
        assert "Restarting the engine, 12.0 s so far" in on.text
        stub.script.held.set()
        await on.app.workers.wait_for_complete()
        assert on.app.view.working is None
    assert stub.asked("POST", "/api/engine/stop") == []


LONG = "Install an engine for this GPU: " + " ".join(
    f"appliance engines install cuda-{n:02d}" for n in range(6)
)


@pytest.mark.parametrize("size", SIZES)
async def test_the_notices_box_wraps_a_long_remedy(size: tuple[int, int]) -> None:
    document = documents.cpu_only()
    document["notes"][0]["todo"] = LONG
    async with fixed(document, size) as on:
        await on.press("n")
        await on.until("cuda-05")
        shown = " ".join(row.strip(" │▐▁▔█▇▆▅▄▃▂╭╮╰╯─") for row in on.text.splitlines())
        assert all(f"cuda-{n:02d}" in shown for n in range(6))
        assert "…" not in on.text.partition("Notices")[2].partition("cuda-05")[0]


async def test_r_restarts_the_engine_after_asking(stub: StubDaemon, paths: Paths) -> None:
    async with against(paths) as on:
        await on.press("r")
        assert "Restart the engine?" in on.text
        await on.press("enter")
        assert len(stub.asked("POST", "/api/engine/restart")) == 1


async def test_a_refused_command_is_told_and_stays_in_the_notices(stub: StubDaemon, paths: Paths) -> None:
    quiet(stub)
    error = {"code": "does_not_fit", "message": "[/bad] It does not fit.", "hint": "Take a smaller one."}
    stub.script.answers["POST", "/api/engine/restart"] = (409, {"error": error})
    async with against(paths) as on:
        await on.press("r")
        await on.pilot.pause()
        assert "Restarting the engine failed" in on.text
        await on.press("n")
        assert "It does not fit. Take a smaller one." in on.text.replace("\n", " ")


async def test_keys_that_need_the_daemon_do_nothing_without_it(stub: StubDaemon, paths: Paths) -> None:
    async with against(paths) as on:
        stub.stop()
        await on.poll()
        calls = len(stub.script.calls)
        await on.press("s", "r", "l")
        assert isinstance(on.app.screen, Dashboard)
        assert len(stub.script.calls) == calls


async def test_without_a_model_there_is_nothing_to_stop(stub: StubDaemon, paths: Paths) -> None:
    stub.script.status |= documents.empty() | {"daemon": stub.script.status["daemon"]}
    async with against(paths) as on:
        await on.press("s", "r")
        assert {call.method for call in stub.script.calls} == {"GET"}


async def test_space_freezes_and_goes_on() -> None:
    async with fixed(documents.normal()) as on:
        await on.press("space")
        assert "Frozen at 09:04:29. Space goes on." in on.text
        await on.press("space")
        assert "Frozen" not in on.text


async def test_l_follows_the_log_in_batches(stub: StubDaemon, paths: Paths) -> None:
    stub.script.logs = [f"line {number}" for number in range(1, 401)]
    async with against(paths) as on:
        await on.press("l")
        screen = on.app.screen
        assert isinstance(screen, LogScreen)
        await screen.follow()
        stub.script.logs.append("the newest line \x1b[2J[/b]")
        await screen.follow()
        await on.pilot.pause()
        assert screen.query_one(Log).line_count >= 401
        await on.until("the newest line [2J[/b]")
        await on.press("escape")
        assert isinstance(on.app.screen, Dashboard)


async def test_the_log_says_when_it_cannot_be_read(stub: StubDaemon, paths: Paths) -> None:
    error = {"code": "engine_unavailable", "message": "No engine has run yet."}
    stub.script.answers["GET", "/api/logs"] = (503, {"error": error})
    async with against(paths) as on:
        await on.press("l")
        screen = on.app.screen
        assert isinstance(screen, LogScreen)
        await screen.follow()
        await on.pilot.pause()
        await on.until("No engine has run yet.")


async def test_the_palette_offers_the_same_actions() -> None:
    async with fixed(documents.normal()) as on:
        titles = [command.title for command in on.app.get_system_commands(on.app.screen)]
        assert {"engine: toggle", "engine: restart", "engine: log", "app: leave", "help: keys"} <= set(titles)
    async with fixed(documents.empty()) as on:
        titles = [command.title for command in on.app.get_system_commands(on.app.screen)]
        assert "engine: restart" not in titles


async def test_a_terminal_that_shrinks_and_grows_comes_back() -> None:
    async with fixed(documents.normal(), (140, 40)) as on:
        before = on.text
        await on.pilot.resize_terminal(48, 12)
        await on.pilot.pause()
        assert on.text.split() == ["needs", "60x16,", "have", "48x12", "·", "●", "ready"]
        await on.pilot.resize_terminal(140, 40)
        await on.pilot.pause()
        assert on.text == before


async def test_a_worker_that_breaks_is_told_and_the_app_lives() -> None:
    class Broken(FixedDoor):
        def restart_engine(self) -> None:
            raise ZeroDivisionError("a bug")

    document = documents.normal() | {"requests": {}, "queue": {}}
    async with running(lambda: Broken(document), (100, 30)) as on:
        await on.pilot.press("r")
        await on.until("A part of this UI failed (ZeroDivisionError)")
        assert on.app.is_running


async def test_overlays_scroll_with_the_keyboard() -> None:
    document = documents.cpu_only()
    document["notes"] = [{"code": f"note_{n}", "detail": "x", "todo": "y"} for n in range(40)]
    async with fixed(document, (80, 24)) as on:
        await on.press("n")
        assert isinstance(on.app.screen, Overlay)
        assert "note_39" not in on.text
        for _ in range(12):
            await on.press("pagedown")
        assert "note_39" in on.text
