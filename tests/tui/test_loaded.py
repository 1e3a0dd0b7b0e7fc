"""The models' screen: what is loaded and what else is here, and keys that load, unload, pin and restart."""

from __future__ import annotations

from typing import Any

import pytest

from appliance.client import StatusSnapshot
from appliance.client.library import CatalogRow
from appliance.paths import Paths
from tests.client import documents
from tests.client.documents import GIB, NOW, OTHERS, REF, resident, several, shelf
from tests.client.stub_daemon import StubDaemon
from tests.tui.screens import SIZES, Running, against, fixed
from tests.tui.test_state import LOST, view
from tui.dashboard import Dashboard
from tui.lines import plain, width_of
from tui.loaded_screen import LoadedScreen
from tui.views.loaded import Entry, Shelf, chosen, entries, entry_lines, neighbour, title_line
from tui.widgets.overlay import Question

GEMMA, QWEN, PHI = OTHERS
MISTRAL, SMOL = "mistral-small-24b-instruct:Q4_K_M", "smollm2-135m-instruct:Q4_1"
FILES = tuple(CatalogRow.parse(row) for row in shelf()["models"])


@pytest.fixture
def pool(stub: StubDaemon) -> StubDaemon:
    """The stub with several models loaded and some more on its disk."""
    stub.script.status["engines"] = several()["engines"]
    stub.script.answers["GET", "/api/models"] = (200, shelf())
    settings = {"settings": [{"key": "models.pinned", "value": [REF, SMOL.partition(":")[0]]}]}
    stub.script.answers["GET", "/api/settings"] = (200, settings)
    return stub


async def open_them(on: Running) -> None:
    await on.press("m")
    await on.until("more here")
    assert isinstance(on.app.screen, LoadedScreen)


def drawn(document: dict[str, Any], files: Shelf, width: int = 100, height: int = 24, **changes: Any) -> str:
    lines = entry_lines(view(document, **changes), files, None, width, height)
    assert len(lines) == height
    assert {width_of(line) for line in lines} == {width}
    return "\n".join(plain(line).rstrip() for line in lines)


def refs(rows: tuple[Entry, ...]) -> list[str]:
    return [row.ref for row in rows]


@pytest.mark.parametrize("size", SIZES)
async def test_m_lists_them_at_every_size_and_escape_goes_back(
    size: tuple[int, int], pool: StubDaemon, paths: Paths
) -> None:
    async with against(paths, size) as on:
        assert "m Models" in on.text
        await open_them(on)
        assert "3 loaded · 3 more here" in on.text
        for word in (
            "ready · default · pinned",
            "slots 1/2",
            "makes way for qwen3-4b",
            "25 %",
            "takes ~16 s",
            "The engine ended while loading (exit code 1).",
            "Do: Load it with fewer layers.",
            "not loaded · pinned",
            "loaded 2 h ago",
        ):
            assert word in on.text
        assert "deepseek" not in on.text, "it is not on this disk"
        await on.press("escape")
        assert isinstance(on.app.screen, Dashboard)
        await on.press("m")
        await on.press("m")
        assert isinstance(on.app.screen, Dashboard)


def test_the_default_comes_first_then_what_is_loaded_then_what_is_here() -> None:
    rows = entries(view(several()), Shelf(FILES))
    assert refs(rows) == [REF, GEMMA, PHI, QWEN, MISTRAL, SMOL]
    used = several()
    used["engines"].append(used["engines"].pop(1))
    assert refs(entries(view(used), Shelf(FILES))) == refs(rows), "the use of a model moves no row"


async def test_enter_loads_what_is_not_loaded(pool: StubDaemon, paths: Paths) -> None:
    async with against(paths) as on:
        await open_them(on)
        await on.press("end")
        await on.until("enter Load")
        assert "u Unload" not in on.text
        await on.press("u", "r", "enter")
        calls = pool.asked("POST", f"/api/models/{SMOL}/load")
        assert [call.body for call in calls] == [{}]
    assert pool.asked("POST", f"/api/models/{SMOL}/unload") == []
    assert pool.asked("POST", f"/api/models/{SMOL}/restart") == []


async def test_a_failed_one_can_be_loaded_and_one_on_its_way_can_be_stopped(
    pool: StubDaemon, paths: Paths
) -> None:
    async with against(paths) as on:
        await open_them(on)
        await on.press("down", "down")
        await on.until("▸ ✖ phi-4")
        await on.press("enter")
        assert len(pool.asked("POST", f"/api/models/{PHI}/load")) == 1
        await on.press("down")
        await on.until("u Stop loading")
        await on.press("enter", "u")
        assert len(pool.asked("POST", f"/api/models/{QWEN}/unload")) == 1
        assert pool.asked("POST", f"/api/models/{QWEN}/load") == []


async def test_the_default_that_is_loaded_is_not_loaded_again(pool: StubDaemon, paths: Paths) -> None:
    async with against(paths) as on:
        await open_them(on)
        assert "enter" not in on.text.splitlines()[-1]
        await on.press("enter")
        assert isinstance(on.app.screen, LoadedScreen)
    assert pool.asked("POST", f"/api/models/{REF}/load") == []


@pytest.mark.parametrize(
    ("key", "question", "path"),
    [
        ("u", f"Unload {GEMMA}?", "unload"),
        ("r", f"Restart {GEMMA}?", "restart"),
        ("enter", f"Load {GEMMA} again, as the default?", "load"),
    ],
)
async def test_it_asks_before_requests_are_cut_off(
    key: str, question: str, path: str, pool: StubDaemon, paths: Paths
) -> None:
    async with against(paths) as on:
        await open_them(on)
        await on.press("down", key)
        assert isinstance(on.app.screen, Question)
        await on.until(question)
        assert f"2 running requests of {GEMMA} would be cut off." in " ".join(on.text.split())
        await on.press("n")
        assert pool.asked("POST", f"/api/models/{GEMMA}/{path}") == []
        await on.press(key, "y")
        assert len(pool.asked("POST", f"/api/models/{GEMMA}/{path}")) == 1


async def test_an_idle_one_is_unloaded_at_once(pool: StubDaemon, paths: Paths) -> None:
    pool.script.status["engines"][1] |= {"wanted": 0, "slots_busy": 0, "makes_way": False}
    async with against(paths) as on:
        await open_them(on)
        await on.press("down", "u")
        assert isinstance(on.app.screen, LoadedScreen)
    assert len(pool.asked("POST", f"/api/models/{GEMMA}/unload")) == 1


async def test_p_pins_and_unpins(pool: StubDaemon, paths: Paths) -> None:
    async with against(paths) as on:
        await open_them(on)
        await on.until("p Unpin")
        await on.press("p")
        assert [call.body for call in pool.asked("POST", f"/api/models/{REF}/pin")] == [{"pinned": False}]
        await on.press("down")
        await on.until("p Pin")
        looks = len(pool.asked("GET", "/api/models"))
        await on.press("p")
        assert [call.body for call in pool.asked("POST", f"/api/models/{GEMMA}/pin")] == [{"pinned": True}]
        assert len(pool.asked("GET", "/api/models")) == looks + 1, "the list is asked for again"
        await on.press("end", "p")
        assert [call.body for call in pool.asked("POST", f"/api/models/{SMOL}/pin")] == [{"pinned": False}]


async def test_a_load_is_shown_and_another_one_waits_but_an_unload_does_not(
    pool: StubDaemon, paths: Paths
) -> None:
    async with against(paths) as on:
        await open_them(on)
        await on.press("end")
        pool.script.held.clear()
        await on.pilot.press("enter")
        await on.until(f"Loading {SMOL} …")
        await on.pilot.press("up", "enter")
        await on.until("command can come after it.")
        await on.pilot.press("home", "down", "down", "down", "u")
        await on.pilot.pause()
        pool.script.held.set()
        await on.app.workers.wait_for_complete()
    assert pool.asked("POST", f"/api/models/{MISTRAL}/load") == []
    assert len(pool.asked("POST", f"/api/models/{QWEN}/unload")) == 1


async def test_a_refusal_is_told_where_one_looks(pool: StubDaemon, paths: Paths) -> None:
    error = {"code": "does_not_fit", "message": "[/bad] It does not fit.", "hint": "Unpin another."}
    pool.script.answers["POST", f"/api/models/{SMOL}/load"] = (409, {"error": error})
    async with against(paths, (80, 24)) as on:
        await open_them(on)
        await on.press("end", "enter")
        await on.until("It does not fit.")
        assert on.app.view.working is None


async def test_the_list_that_is_on_its_way_is_said_and_what_is_loaded_shown_meanwhile(
    pool: StubDaemon, paths: Paths
) -> None:
    async with against(paths, (80, 24)) as on:
        pool.script.held.clear()
        await on.pilot.press("m")
        await on.until("Asking which models are here")
        assert GEMMA in on.text
        assert SMOL not in on.text
        pool.script.held.set()
        await on.app.workers.wait_for_complete()
        await on.until(SMOL)
        assert "Asking" not in on.text


async def test_a_list_that_fails_says_why_and_keeps_what_is_known(pool: StubDaemon, paths: Paths) -> None:
    error = {"code": "failed", "message": "The disk\x1b[2J is gone.", "hint": "Look at it."}
    pool.script.answers["GET", "/api/models"] = (500, {"error": error})
    async with against(paths, (100, 30)) as on:
        await on.press("m")
        await on.until("The models on the disk can't be listed: The disk[2J is gone. Look at it.")
        assert GEMMA in on.text
        pool.script.answers["GET", "/api/models"] = (200, shelf())
        screen = on.app.screen
        assert isinstance(screen, LoadedScreen)
        await screen.look()
        await on.until(SMOL)
        assert "can't be listed" not in on.text


async def test_lost_contact_keeps_the_list_dimmed_and_the_keys_do_nothing(
    pool: StubDaemon, paths: Paths
) -> None:
    async with against(paths, (80, 24)) as on:
        await open_them(on)
        pool.stop()
        await on.poll()
        await on.until("Lost contact")
        assert GEMMA in on.text
        calls = len(pool.script.calls)
        await on.press("u", "p", "enter", "r", "down")
        assert isinstance(on.app.screen, LoadedScreen)
        assert len(pool.script.calls) == calls
    old = entry_lines(view(several(), lost=LOST), Shelf(FILES), None, 80, 20)
    assert {span.tone for line in old for span in line if span.text.strip()} == {"muted"}


def test_without_any_model_it_says_how_to_get_one() -> None:
    shown = drawn(documents.empty(), Shelf(()))
    assert "No model is here yet." in shown
    assert "appliance models pull MODEL" in shown


async def test_keys_do_nothing_without_a_model(stub: StubDaemon, paths: Paths) -> None:
    stub.script.status |= documents.empty() | {"daemon": stub.script.status["daemon"]}
    async with against(paths, (80, 24)) as on:
        await on.press("m")
        await on.until("No model is here yet.")
        await on.press("u", "p", "enter", "r", "up", "down", "home", "end")
        assert isinstance(on.app.screen, LoadedScreen)
    assert {call.method for call in stub.script.calls} == {"GET"}


def test_the_chosen_one_is_always_in_sight() -> None:
    files = tuple(CatalogRow.parse({"ref": f"model-{n:02}:Q4", "state": "here"}) for n in range(40))
    for height in (3, 5, 20):
        for n in (0, 7, 39):
            lines = entry_lines(view(documents.empty()), Shelf(files), f"model-{n:02}:Q4", 80, height)
            assert any(plain(line).startswith(f" ▸ ○ model-{n:02}:Q4 ") for line in lines)


def test_choosing_stops_at_both_ends_and_a_model_that_is_gone_leaves_the_choice_to_the_first() -> None:
    rows = entries(view(several()), Shelf(FILES))
    steps = ((None, -1), (None, 1), (SMOL, 1), (SMOL, -1), ("gone", 1))
    assert [neighbour(rows, wanted, step) for wanted, step in steps] == [REF, GEMMA, SMOL, MISTRAL, GEMMA]
    assert chosen((), "a") is None
    assert neighbour((), "a", 1) is None


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({"state": "busy", "slots_busy": 4}, "slots 4/2"),
        ({"slots_busy": None, "parallel": None}, "slots n/a/n/a"),
        ({"gpu_layers": 0}, "CPU"),
        ({"gpu_layers": None}, "layers n/a"),
        (
            {"n_layer": 18, "gpu_layers": 19, "devices": [{"name": "Vulkan0", "software": True}]},
            "Vulkan0 19/19",
        ),
        ({"waiting": 3, "wanted": 3}, "3 waiting"),
        ({"unload_at": NOW + 720}, "unloads in 12 min"),
        ({"unload_at": NOW - 5}, "unloads in 0 s"),
        ({"makes_way": True}, "makes way for another"),
        ({"state": "absent", "wanted": 2}, "wanted"),
        ({"state": "failed"}, "no reason given"),
        ({"state": "a word of tomorrow"}, "a word of tomorrow"),
        ({"tokens_per_second": 143.24}, "143.2 t/s"),
        ({"adapters": [{"name": "sql"}]}, "with sql"),
        ({"model": "évil\x1b[2J\u202e\u200d[/b]:Q4"}, "évil"),
        ({"model": "x" * 300}, "…"),
    ],
)
@pytest.mark.parametrize("width", [60, 80, 140])
def test_any_row_can_be_drawn(changes: dict[str, Any], shown: str, width: int) -> None:
    document = documents.normal() | {"engines": [resident("m:Q4") | changes]}
    text = drawn(document, Shelf(()), width=width)
    assert shown in text
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_the_title_counts_and_says_what_memory_is_free() -> None:
    assert "3 loaded · 3 more here" in plain(title_line(view(several()), Shelf(FILES), 100))
    assert "GPU 544.0 MiB · RAM 41.30 GiB free" in plain(title_line(view(several()), Shelf(FILES), 100))
    unknown = plain(title_line(view({}), Shelf(), 80))
    assert "0 loaded" in unknown
    assert "RAM n/a free" in unknown


def test_a_file_that_is_not_whole_is_not_offered() -> None:
    states = ("absent", "partial", "damaged", "missing", "downloading")
    files = tuple(CatalogRow.parse({"ref": f"{one}:Q4", "state": one, "size": GIB}) for one in states)
    assert entries(view(documents.empty()), Shelf(files)) == ()


async def test_help_shows_the_keys_of_this_screen() -> None:
    async with fixed(several(), (80, 24)) as on:
        await on.press("m")
        await on.until("Models loaded")
        await on.press("question_mark")
        await on.until("Among the models: free the memory")
        assert "Stop all engines" not in on.text
        assert "Leave the UI." in on.text
        await on.press("escape")
        assert isinstance(on.app.screen, LoadedScreen)


async def test_ascii_terminals_get_ascii() -> None:
    async with fixed(several(), (80, 24), ascii_only=True) as on:
        await on.press("m")
        await on.until("Models loaded")
        await on.app.workers.wait_for_complete()
        assert on.text.isascii()


async def test_no_colour_still_says_every_state_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with fixed(several(), (80, 24)) as on:
        await on.press("m")
        await on.until("Models loaded")
        for word in ("ready", "busy", "loading", "failed", "default", "pinned"):
            assert word in on.text


def test_nothing_is_claimed_before_the_first_snapshot() -> None:
    assert entries(view(snapshot=None), Shelf(FILES))[0].engine is None
    assert StatusSnapshot.parse({}).engines == ()
