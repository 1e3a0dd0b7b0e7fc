"""`appliance models load|unload|restart|pin|unpin`, and what `models list` and `status` say of several."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.cli.status_text import status_lines
from appliance.client import StatusSnapshot
from appliance.paths import Paths
from tests.cli.indoors import Indoors
from tests.client.documents import NOW, OTHERS, REF, normal, resident, several, shelf
from tests.client.stub_daemon import StubDaemon

GEMMA, QWEN, PHI = OTHERS


@pytest.fixture
def home(tmp_path: Path) -> Indoors:
    return Indoors(tmp_path)


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[StubDaemon]:
    """A daemon on the wire, with several models."""
    daemon = StubDaemon(Paths(*(tmp_path / name for name in ("config", "data", "state", "cache", "run"))))
    daemon.script.status["engines"] = several()["engines"]
    daemon.script.answers["GET", "/api/models"] = (200, shelf())
    daemon.start()
    yield daemon
    daemon.stop()


@pytest.mark.parametrize("command", ["load", "unload", "restart", "pin", "unpin"])
def test_without_a_daemon_it_ends_with_3_and_says_what_to_do(command: str, home: Indoors) -> None:
    done = home.run("models", command, GEMMA, "--json")
    assert done.code == 3
    assert done.document["error"]["code"] == "no_daemon"
    assert "appliance up" in done.document["error"]["hint"]
    assert "Do: " in done.err


def test_load_passes_the_wishes_on_and_says_what_became_of_it(home: Indoors, pool: StubDaemon) -> None:
    pool.script.answers["POST", "/api/models/gemma/load"] = (200, {"ref": GEMMA, "state": "ready"})
    options = ("--ctx", "2048", "--parallel", "2", "--kv", "q8_0", "--gpu-layers", "4")
    done = home.run("models", "load", "gemma", *options)
    assert (done.code, done.out) == (
        0,
        f"{GEMMA} is loaded. It took 4 s. Requests that name no model go to it now.\n",
    )
    assert done.err == "Loading gemma ...\n"
    sent = pool.asked("POST", "/api/models/gemma/load")[0].body
    assert sent == {"ctx": 2048, "parallel": 2, "kv": "q8_0", "gpu_layers": 4}


def test_what_is_left_to_the_planner_is_not_sent(home: Indoors, pool: StubDaemon) -> None:
    assert home.run("models", "load", GEMMA, "--gpu-layers", "auto").code == 0
    assert pool.asked("POST", f"/api/models/{GEMMA}/load")[0].body == {}


@pytest.mark.parametrize(
    ("command", "path", "body", "said"),
    [
        ("unload", "unload", {}, "is not loaded any more"),
        ("restart", "restart", {}, "is loaded"),
        ("pin", "pin", {"pinned": True}, "once loaded, it stays"),
        ("unpin", "pin", {"pinned": False}, "may make way"),
    ],
)
def test_each_reaches_its_endpoint(
    command: str, path: str, body: object, said: str, home: Indoors, pool: StubDaemon
) -> None:
    done = home.run("models", command, GEMMA)
    assert done.code == 0
    assert GEMMA in done.out
    assert said in done.out
    assert [call.body for call in pool.asked("POST", f"/api/models/{GEMMA}/{path}")] == [body]


@pytest.mark.parametrize("command", ["load", "unload", "restart", "pin", "unpin"])
def test_json_is_the_answer_of_the_daemon_alone(command: str, home: Indoors, pool: StubDaemon) -> None:
    answer = {"ref": GEMMA, "state": "ready"}
    pool.script.answers["POST", f"/api/models/{GEMMA}/{command.removeprefix('un')}"] = (200, answer)
    pool.script.answers["POST", f"/api/models/{GEMMA}/{command}"] = (200, answer)
    assert home.run("models", command, GEMMA, "--json").document == answer


def test_a_load_that_fails_keeps_the_code_of_its_error(home: Indoors, pool: StubDaemon) -> None:
    error = {"code": "does_not_fit", "message": "It does not fit.", "hint": "Unpin another."}
    pool.script.answers["POST", f"/api/models/{GEMMA}/load"] = (409, {"error": error})
    done = home.run("models", "load", GEMMA)
    assert done.code == 5
    assert "Do: Unpin another." in done.err
    assert done.out == ""


def test_the_name_in_an_answer_can_not_drive_the_terminal(home: Indoors, pool: StubDaemon) -> None:
    pool.script.answers["POST", "/api/models/a/unload"] = (200, {"ref": "a\x1b[2J:Q4"})
    assert home.run("models", "unload", "a").out == "a[2J:Q4 is not loaded any more.\n"


def test_the_list_marks_what_is_loaded_and_the_default(home: Indoors, pool: StubDaemon) -> None:
    settings = {"settings": [{"key": "models.pinned", "value": ["mistral-small-24b-instruct"]}]}
    pool.script.answers["GET", "/api/settings"] = (200, settings)
    shown = {row.split()[0]: row for row in home.run("models", "list").out.splitlines() if row}
    assert "loaded, default" in shown[REF]
    assert "  loaded " in shown[GEMMA]
    assert "  loading " in shown[QWEN]
    assert "  failed " in shown[PHI]
    assert "  here " in shown["smollm2-135m-instruct:Q4_1"]
    rows = {row["ref"]: row for row in home.run("models", "list", "--json").document["models"]}
    found = {ref: (row["engine"], row["default"], row["pinned"]) for ref, row in rows.items()}
    assert found[REF] == ("ready", True, True)
    assert found[GEMMA] == ("busy", False, False)
    assert found["mistral-small-24b-instruct:Q4_K_M"] == (None, False, True)


def test_without_a_daemon_nothing_is_loaded_and_pins_come_from_the_settings(home: Indoors) -> None:
    assert home.run("config", "set", "models.pinned", "smollm2-135m-instruct").code == 0
    rows = home.run("models", "list", "--family", "smollm2", "--json").document["models"]
    assert {(row["engine"], row["default"], row["loaded"]) for row in rows} == {(None, False, False)}
    assert {row["pinned"] for row in rows if row["id"] == "smollm2-135m-instruct"} == {True}


def status(*engines: dict[str, object]) -> list[str]:
    shot = StatusSnapshot.parse(normal() | {"engines": list(engines)})
    return list(status_lines(shot, now=NOW))


def test_status_says_of_each_model_what_it_does_in_lines_of_80() -> None:
    lines = status(*several()["engines"])
    about = lines[2 : next(n for n, one in enumerate(lines) if one.startswith("GPU"))]
    assert max(map(len, about)) <= 80
    text = "\n".join(about)
    assert f"Engine    ● ready · {REF} · default · pinned\n" in text
    assert "35 of 65 layers on the GPU · 1 of 2 slots busy · 1 waiting\n" in text
    assert f"Engine    ● busy · {GEMMA}\n" in text
    assert f"makes way for {QWEN}" in text
    assert f"Engine    ◐ loading · {QWEN}\n          25% · for 4 s · takes about 16 s · 3 waiting\n" in text
    assert f"Engine    ✖ failed · {PHI}\n          ✖ The engine ended while loading (exit code 1)." in text
    assert "          Do: Load it with fewer layers." in text


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"unload_at": NOW + 720}, "unloads in 12 min"),
        ({"unload_at": NOW + 7_200}, "unloads in 2 h"),
        ({"gpu_layers": 0}, "all 65 layers on the CPU"),
        ({"n_layer": None}, "layers n/a"),
        ({"makes_way": True}, "makes way for another model"),
        ({"adapters": [{"name": "sql", "scale": 1.0}]}, "with sql"),
        ({"state": "absent", "wanted": 2}, "2 waiting"),
        ({"tokens_per_second": None, "ctx": None}, "n/a tokens per request · n/a tokens/s"),
    ],
)
def test_what_status_says_of_one_model(changes: dict[str, object], said: str) -> None:
    assert said in "\n".join(status(resident("a:Q4") | changes))


def test_one_that_was_unloaded_is_called_so() -> None:
    text = "\n".join(status(resident("a:Q4", default=True, state="absent", unload_at=None)))
    assert "Engine    ○ not loaded · a:Q4 · default\n" in text
    assert "tokens per request" not in text


def test_status_json_is_the_document(home: Indoors, pool: StubDaemon) -> None:
    document = json.loads(home.run("status", "--json").out)
    assert [row["state"] for row in document["engines"]] == ["ready", "busy", "loading", "failed"]


def test_saved_prompts_that_only_engines_hold_are_forgotten_too_and_that_is_said(
    home: Indoors, pool: StubDaemon
) -> None:
    pool.script.answers["DELETE", "/api/prompts"] = (200, {"files": 0, "n_bytes": 0})
    done = home.run("models", "prune", "--private")
    assert (done.code, done.out) == (0, "What engines hold now will not be saved when they stop.\n")
    assert len(pool.asked("DELETE", "/api/prompts")) == 1
    assert home.run("models", "prune", "--private", "--json").document["engines_forget"] is True
    assert home.run("models", "prune", "--private", "--dry-run", "--json").document["engines_forget"] is False
    assert len(pool.asked("DELETE", "/api/prompts")) == 2
