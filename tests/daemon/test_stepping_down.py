"""A load that runs out of memory: smaller plans, said aloud, and an end in any case."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from appliance.daemon import loading
from appliance.daemon.served import ServingSnapshot
from appliance.daemon.status import notes
from appliance.engines import Build
from appliance.errors import EngineFailed
from appliance.monitor import MonitorSnapshot
from appliance.operations.plans import answer as answer_room
from appliance.operations.plans.answer import answer
from appliance.operations.plans.plan import Wishes
from appliance.paths import Paths
from appliance.planning import Plan
from appliance.planning.stepdown import MAX_STEPS
from tests.daemon.house import SERVED, House, house, looks
from tests.engines.fake_engine import Script, install, starts
from tests.engines.launches import paths_in

CARD = "CUDA0: Some GPU (8192 MiB, 3000 MiB free)"
LOADED = (
    "load_tensors: offloaded 31/31 layers to GPU",
    "load_tensors:        CUDA0 model buffer size =    90.00 MiB",
)


TWO = Wishes(parallel=2)


@pytest.fixture
def paths() -> Iterator[Paths]:
    """With a short path: sockets lie in it."""
    folder = Path(tempfile.mkdtemp(prefix="appl"))
    yield paths_in(folder)
    shutil.rmtree(folder, ignore_errors=True)


def engine(paths: Paths, *scripts: Script, card: str = CARD) -> tuple[Build, Path]:
    folder = paths.data / "fake"
    return install(folder, *scripts, devices=[card]), folder


def alive(folder: Path) -> list[int]:
    """The processes of the fake engine that still run."""
    pids = [int(line) for line in (folder / "starts").read_text().split()]
    return [pid for pid in pids if Path(f"/proc/{pid}").exists() and os.getpgid(pid) is not None]


async def test_an_engine_without_room_gets_a_smaller_plan_and_everyone_is_told(
    paths: Paths, smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build, folder = engine(paths, Script(load_lines=LOADED, room=10_000))
    looks(monkeypatch, [build])
    async with house(paths, smollm2_path) as home:
        await home.serving.load(home.ref, TWO)
        now = home.serving.snapshot
        assert now.state == "ready"
        assert now.plan is not None
        assert now.plan.ctx * now.plan.parallel <= 10_000
        first = next(one.plan for one in home.told if one.plan is not None)
        assert first is not None
        assert first.ctx * first.parallel > 10_000
        assert 2 <= starts(folder) <= 1 + MAX_STEPS
        assert "failed" not in home.states(), (
            "who waits for the model must not be sent away between two steps"
        )
        assert {"kv_quantised", "context_cut"} <= set(now.plan.given_up)
        assert set(now.plan.given_up) <= set(home.local.degraded(SERVED))
        steps = [reason.text for reason in now.plan.reasons if reason.code == "step_down"]
        assert len(steps) == starts(folder) - 1
        assert f"{first.parallel} x {first.ctx}" in steps[0]
        assert "CUDA0" in steps[0]
        (note,) = (note for note in notes(now, MonitorSnapshot()) if note.code == "stepped_down")
        assert all(step in note.detail for step in steps)
    assert alive(folder) == []


async def test_what_ran_out_is_not_tried_again_by_the_next_load(
    paths: Paths, smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build, folder = engine(paths, Script(load_lines=LOADED, room=10_000))
    looks(monkeypatch, [build])
    async with house(paths, smollm2_path) as home:
        await home.serving.load(home.ref, TWO)
        tried, good = starts(folder), home.serving.snapshot.plan
        await home.serving.restart()
        assert starts(folder) == tried + 1, "the second load starts what the first one ended with"
        again = home.serving.snapshot.plan
        assert good is not None
        assert again is not None
        assert again.flags == good.flags
        assert again.given_up == good.given_up
        told = list(notes(home.serving.snapshot, MonitorSnapshot()))
        assert "stepped_down" not in {note.code for note in told}, "nothing ran out in this load"
        (note,) = (note for note in told if note.code == "ran_out_before")
        assert "earlier load" in note.detail
        assert "appliance up smol:Q4_1 --retry" in (note.todo or "")
        assert set(good.given_up) <= set(home.local.degraded(SERVED))


async def test_a_plan_says_what_a_load_would_do_after_memory_ran_out(
    paths: Paths, smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build, _ = engine(paths, Script(load_lines=LOADED, room=10_000))
    looks(monkeypatch, [build])
    monkeypatch.setattr(answer_room, "survey", vars(loading)["survey"])
    body = {"model": "smol", "parallel": 2}
    async with house(paths, smollm2_path) as home:
        before = await answer(home.library, body)
        assert not any(reason["code"].startswith("ran_out") for reason in before["reasons"])
        await home.serving.load(home.ref, TWO)
        document = await answer(home.library, body)
        await home.serving.restart()
        loaded = home.serving.snapshot.plan
        assert loaded is not None
        assert document["flags"] == loaded.to_json()["flags"] != before["flags"]
        assert document["given_up"] == list(loaded.given_up)
        lines = [reason["text"] for reason in document["reasons"] if reason["code"] == "ran_out_before"]
        assert lines == [one.text for one in loaded.reasons if one.code == "ran_out_before"]
        assert re.search(
            r"CUDA0 ran out before \(on \d+ \w+, \d\d:\d\d\) with 31 layers .*; now .*\d+ tokens", lines[-1]
        )
        assert re.search(r"remembered until \d+ \w+, \d\d:\d\d, or until more memory is free", lines[-1])
        assert "appliance up smol:Q4_1 --retry" in lines[-1]
        assert sum("--retry" in line for line in lines) == 1
        home.lessons.forget_ran_out(home.ref.variant.main.sha256)
        assert (await answer(home.library, body))["flags"] == before["flags"]


async def test_another_engine_file_of_the_same_build_does_not_inherit_it(
    paths: Paths, smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build, _ = engine(paths, Script(load_lines=LOADED, room=10_000))
    other = install(paths.data / "other", Script(load_lines=LOADED), devices=[CARD])
    assert other.build == build.build
    found = looks(monkeypatch, [build])
    async with house(paths, smollm2_path) as home:
        await home.serving.load(home.ref, TWO)
        first = next(one.plan for one in home.told if one.plan is not None)
        monkeypatch.undo()
        looks(monkeypatch, [other])
        await home.serving.restart()
        assert first is not None
        assert home.serving.snapshot.plan is not None
        assert home.serving.snapshot.plan.flags == first.flags
    assert found


async def test_a_silent_crash_after_a_step_is_answered_by_the_next_step(
    paths: Paths, smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build, _ = engine(paths, Script(room=0), Script(load_lines=LOADED, room_silent=12_000))
    looks(monkeypatch, [build])
    async with house(paths, smollm2_path) as home:
        await home.serving.load(home.ref, TWO)
        before = home.serving.snapshot.plan
        assert before is not None
        assert before.ctx * before.parallel > 12_000, "one step is enough to load"
        await _until_it_answers(home)
        now = home.serving.snapshot
        assert now.plan is not None
        assert now.plan.ctx * now.plan.parallel <= 12_000
        assert now.engine is not None
        assert now.engine.restarts == 0
        (note,) = (note for note in notes(now, MonitorSnapshot()) if note.code == "stepped_down")
        assert "while loading" in note.detail
        assert "while serving" in note.detail


async def test_without_any_room_it_ends_with_one_error_and_no_process(
    paths: Paths, smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build, folder = engine(paths, Script(room=0))
    looks(monkeypatch, [build])
    async with house(paths, smollm2_path) as home:
        with pytest.raises(EngineFailed) as caught:
            await home.serving.load(home.ref, TWO)
        assert caught.value.out_of_memory == "CUDA0"
        assert caught.value.hint
        assert caught.value.exit_code == 5
        smaller = starts(folder) - 1
        assert f"{smaller} smaller plan" in caught.value.message
        tried = [line for line in (caught.value.cause or "").splitlines() if line.startswith("Tried: ")]
        assert len(set(tried)) == len(tried) == starts(folder)
        now = home.serving.snapshot
        assert (now.state, now.error) == ("failed", caught.value)
        assert home.states().count("failed") == 1
        assert 2 <= starts(folder) <= 1 + MAX_STEPS
        assert alive(folder) == []
        before = starts(folder)
        with pytest.raises(EngineFailed):
            await home.serving.restart()
        assert starts(folder) == before + 1, "only the smallest is tried once more"


async def test_what_a_person_asked_for_is_not_made_smaller(
    paths: Paths, smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build, folder = engine(paths, Script(room=0))
    looks(monkeypatch, [build])
    asked = Wishes(ctx=4096, parallel=2, gpu_layers=31, kv="f16", ubatch=512)
    async with house(paths, smollm2_path) as home:
        with pytest.raises(EngineFailed) as caught:
            await home.serving.load(home.ref, asked)
        assert starts(folder) == 1
        assert caught.value.cause == "The GPU ran out of memory."
        assert "--" in (caught.value.hint or ""), "the smallest change is an option to type"


async def test_other_failures_are_not_answered_by_a_smaller_plan(
    paths: Paths, smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build, folder = engine(paths, Script(load_lines=("unknown model architecture: 'x'",), die_loading=1))
    looks(monkeypatch, [build])
    async with house(paths, smollm2_path) as home:
        with pytest.raises(EngineFailed) as caught:
            await home.serving.load(home.ref, TWO)
        assert caught.value.out_of_memory is None
        assert starts(folder) == 1


async def test_out_of_memory_while_serving_is_planned_again_with_less(
    paths: Paths, smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build, folder = engine(paths, Script(load_lines=LOADED, room_serving=10_000))
    looks(monkeypatch, [build])
    async with house(paths, smollm2_path) as home:
        await home.serving.load(home.ref, TWO)
        answered = await _until_it_answers(home)
        assert answered <= MAX_STEPS + 1
        now = home.serving.snapshot
        assert now.plan is not None
        assert now.plan.ctx * now.plan.parallel <= 10_000
        assert now.plan.given_up != ()
        assert set(home.states()) <= {"starting", "loading", "ready", "busy"}, "requests wait all the time"
        (note,) = (note for note in notes(now, MonitorSnapshot()) if note.code == "stepped_down")
        assert "while serving" in note.detail
        assert "while loading" not in note.detail
        await home.serving.restart()
        assert await home.chat() == 200, "what ran out while it served is remembered, too"
        assert starts(folder) == answered + 1


async def test_an_engine_that_never_has_room_to_serve_is_given_up(
    paths: Paths, smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build, folder = engine(paths, Script(load_lines=LOADED, room_serving=0))
    looks(monkeypatch, [build])
    async with house(paths, smollm2_path) as home:
        await home.serving.load(home.ref, TWO)
        while home.serving.snapshot.state != "failed":
            assert await home.chat() == 0
            await home.until(lambda now: now.state in ("ready", "failed"))
        assert starts(folder) <= MAX_STEPS + 1
        error = home.serving.snapshot.error
        assert isinstance(error, EngineFailed)
        assert error.out_of_memory == "CUDA0"
        assert alive(folder) == []


def _ready_with_another(plan: Plan | None) -> Callable[[ServingSnapshot], bool]:
    return lambda now: now.state == "ready" and now.plan is not plan


async def _until_it_answers(home: House) -> int:
    """How many chats it took; each that broke was followed by another plan."""
    for count in range(1, MAX_STEPS + 3):
        before = home.serving.snapshot.plan
        if await home.chat() == 200:
            return count
        await home.until(_ready_with_another(before))
    raise AssertionError("it never answered")
