"""Two real models behind one daemon: loaded, swapped under a budget, asked in turn, and none left behind."""

from __future__ import annotations

import concurrent.futures
import json
import os
import signal
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.end_to_end.appliance import MODEL, Home, Running, alive

SMOL, GEMMA = f"{MODEL}:Q4_1", "gemma-3-270m:Q4_K_M"
SMALL = {"APPLIANCE_MODELS__MEMORY": "560MiB", "APPLIANCE_ENGINE__CTX": "1024"}
"""With 2 slots of 1,024 tokens the one takes 280 MiB and the other 440: one at a time."""


@pytest.fixture
def two(home: Home, gemma3_path: Path) -> Home:
    """A user who has both."""
    done = home.run("models", "import", str(gemma3_path), "--json")
    assert done.code == 0, done.err
    return home


@pytest.fixture
def small(two: Home) -> Iterator[Running]:
    two.env |= SMALL
    with two.up(MODEL, "--parallel", "2") as up:
        yield up


def ask(up: Running, model: str, prompt: str = "The capital of France is", tokens: int = 4) -> dict[str, Any]:
    """One completion, as any script would send it."""
    body = json.dumps({"model": model, "prompt": prompt, "max_tokens": tokens}).encode()
    request = urllib.request.Request(
        f"{up.url}/completions", data=body, headers={"Content-Type": "application/json"}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=120) as answer:
        found = json.loads(answer.read())
    assert isinstance(found, dict)
    return found


def engines(up: Running) -> dict[str, dict[str, Any]]:
    return {row["model"]: row for row in up.status()["engines"]}


def loads(up: Running) -> list[str]:
    """Models in the order in which they were loaded, from the journal's events."""
    events = up.raw("GET", "/api/journal/events?limit=500")[1]["events"]
    return [event["ref"] for event in events if event["kind"] == "loaded"]


def test_both_models_answer_and_both_stay_loaded(two: Home) -> None:
    with two.up(MODEL, "--parallel", "2") as up:
        assert ask(up, "gemma-3-270m")["appliance"]["model"] == GEMMA
        assert ask(up, MODEL)["appliance"]["model"] == SMOL
        rows = engines(up)
        assert {model: row["state"] for model, row in rows.items()} == {SMOL: "ready", GEMMA: "ready"}
        assert rows[SMOL]["default"] is True
        assert rows[SMOL]["pid"] != rows[GEMMA]["pid"]
        listed = up.raw("GET", "/v1/models")[1]["data"]
        assert {row["id"] for row in listed} == {SMOL, GEMMA}
        family = [process.pid for process in up.family()]
    assert [pid for pid in family if alive(pid)] == []


@pytest.mark.slow
def test_under_a_small_budget_one_makes_way_for_the_other(small: Running) -> None:
    for model, other in ((GEMMA, SMOL), (SMOL, GEMMA), (GEMMA, SMOL)):
        assert ask(small, model)["appliance"]["model"] == model
        rows = engines(small)
        assert rows[model]["state"] in ("ready", "busy")
        assert other not in rows or rows[other]["pid"] is None
    events = small.raw("GET", "/api/journal/events?limit=500")[1]["events"]
    assert [event["ref"] for event in events if event["kind"] == "evicted"] == [SMOL, GEMMA, SMOL]


@pytest.mark.slow
def test_eight_clients_of_two_models_that_do_not_fit_together_do_not_thrash(small: Running) -> None:
    began = time.monotonic()
    before = len(loads(small))

    def client(model: str) -> list[str]:
        return [ask(small, model, tokens=2)["appliance"]["model"] for _ in range(6)]

    wanted = [SMOL, GEMMA] * 4
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answered = list(pool.map(client, wanted))
    assert answered == [[model] * 6 for model in wanted]
    took = time.monotonic() - began
    swaps = len(loads(small)) - before
    assert swaps <= took / 10 + 2, f"{swaps} swaps in {took:.0f} s: each turn lasts at least 10 s"
    assert swaps <= 16, f"{swaps} swaps for 48 requests"


@pytest.mark.slow
def test_twenty_clients_of_one_cold_model_cause_one_load(two: Home) -> None:
    with two.up(MODEL, "--parallel", "2") as up:
        with concurrent.futures.ThreadPoolExecutor(20) as pool:
            answers = list(pool.map(lambda _: ask(up, GEMMA, tokens=1), range(20)))
        assert {answer["appliance"]["model"] for answer in answers} == {GEMMA}
        assert loads(up).count(GEMMA) == 1
        assert engines(up)[GEMMA]["restarts"] == 0


def test_kill_9_of_the_daemon_ends_both_engines_within_two_seconds(two: Home) -> None:
    with two.up(MODEL, "--parallel", "2") as up:
        ask(up, GEMMA)
        pids = [int(row["pid"]) for row in engines(up).values()]
        assert len(pids) == 2
        os.kill(up.pid, signal.SIGKILL)
        gone, left = psutil.wait_procs(
            [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)], timeout=2
        )
        assert left == [], f"{len(gone)} of {len(pids)} engines ended"
        up.process.wait(10)


def test_a_person_loads_pins_and_unloads_by_command(two: Home) -> None:
    with two.up(MODEL, "--parallel", "2") as up:
        assert two.run("models", "load", GEMMA, "--json").code == 0
        assert two.run("models", "pin", SMOL, "--json").code == 0
        rows = engines(up)
        assert (rows[GEMMA]["default"], rows[SMOL]["pinned"]) == (True, True)
        assert two.run("models", "unload", GEMMA, "--json").code == 0
        assert engines(up)[GEMMA]["pid"] is None
        assert ask(up, GEMMA)["appliance"]["model"] == GEMMA, "a request loads it again"
