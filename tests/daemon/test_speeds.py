"""What finished replies teach about memory, and what they must not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from appliance.daemon.local import LocalSide
from appliance.daemon.served import ServingSnapshot
from appliance.daemon.speeds import TOGETHER, BandwidthLearner, conditions_of
from appliance.gateway.ports import Conditions, Outcome, Served
from appliance.monitor import Monitor, MonitorSnapshot, Pressure
from appliance.operations.lessons.learning import Lessons
from appliance.operations.lessons.speeds import plan_key
from appliance.planning import Plan
from appliance.planning.speed.reads import Read
from appliance.settings import Governor
from tests.daemon.shelf import Shelf, pool_of
from tests.planning.machines import GIB, gpu, llama_like, plan

WELL = Conditions("cool", "ac", "p")
GB = 1_000_000_000


class Notes:
    """What was handed on."""

    def __init__(self) -> None:
        self.made: list[tuple[str, str, float]] = []

    def __call__(self, build: str, place: str, bytes_per_s: float) -> None:
        self.made.append((build, place, bytes_per_s))


@pytest.fixture
def notes() -> Notes:
    return Notes()


def on_card() -> Plan:
    """All of 4 GB on a card; a full context reads 1 GB more."""
    made = plan(llama_like(), gpu(24 * GIB), ctx=8_192, parallel=1)
    card, ram = Read(4 * GB, 300e9, False, 33, True, 0.0), Read(0, 40e9, False, 0, False)
    return replace(made, reads=(card, ram), reads_full=(replace(card, n_bytes=5 * GB), ram))


def reply(speed: float, **changes: Any) -> Outcome:
    return replace(
        Outcome(
            tokens_in=0, tokens_out=64, tokens_per_second=speed, ttft_s=0.1, running=1, ok=True, streams=1
        ),
        **changes,
    )


async def learned(
    notes: Notes, served: Plan, *outcomes: Outcome, now: Conditions = WELL
) -> list[tuple[str, str, float]]:
    learner = BandwidthLearner(notes)
    for outcome in outcomes:
        learner.learn(served, outcome, now)
    await learner.close()
    return notes.made


async def test_the_median_of_a_few_replies_is_handed_on(notes: Notes) -> None:
    ((build, place, bytes_per_s),) = await learned(notes, on_card(), reply(50.0), reply(2.0), reply(52.0))
    assert (build, place) == ("llama-server b10434", "CUDA0")
    assert bytes_per_s == pytest.approx(4 * GB * 50, rel=0.01)


async def test_one_reply_is_not_enough(notes: Notes) -> None:
    assert await learned(notes, on_card(), *[reply(50.0)] * (TOGETHER - 1)) == []


async def test_what_a_long_context_reads_beside_the_weights_counts(notes: Notes) -> None:
    (_, _, found), *_ = await learned(notes, on_card(), *[reply(40.0, tokens_in=8_160)] * TOGETHER)
    assert found == pytest.approx(5 * GB * 40, rel=0.01)


async def test_without_a_card_it_is_ram_that_is_learned(notes: Notes) -> None:
    made = plan(llama_like())
    ram = (Read(4 * GB, 40e9, False, 33, False),)
    served = replace(made, reads=ram, reads_full=ram)
    ((_, place, _),) = await learned(notes, served, *[reply(9.0)] * TOGETHER)
    assert place == "Host"


@pytest.mark.parametrize(
    "changes",
    [{"streams": 2}, {"streams": None}, {"tokens_out": 8}, {"tokens_out": None}, {"ok": False},
     {"tokens_per_second": None}],
    ids=str,
)  # fmt: skip
async def test_a_reply_that_was_not_alone_or_short_teaches_nothing(
    notes: Notes, changes: dict[str, Any]
) -> None:
    assert await learned(notes, on_card(), *[reply(50.0, **changes)] * TOGETHER) == []


@pytest.mark.parametrize(
    ("now", "counts"),
    [
        (Conditions("cool", "ac"), True),
        (Conditions(None, "ac"), True),
        (Conditions("warm", "ac"), False),
        (Conditions("throttled", "ac"), False),
        (Conditions("critical", "ac"), False),
        (Conditions("cool", "battery"), False),
        (Conditions("cool", None), False),
    ],
)
async def test_heat_and_battery_are_no_property_of_memory(
    notes: Notes, now: Conditions, counts: bool
) -> None:
    assert bool(await learned(notes, on_card(), *[reply(50.0)] * TOGETHER, now=now)) == counts


@pytest.mark.parametrize(
    "change",
    [
        lambda p: replace(p, draft="gpu"),
        lambda p: replace(p, engine_build=None),
        lambda p: replace(p, reads=(), reads_full=()),
        lambda p: replace(p, reads=(p.reads[0], replace(p.reads[1], n_bytes=GB))),
    ],
    ids=["draft model", "no engine", "nothing known", "two places"],
)
async def test_a_plan_whose_speed_is_not_one_memorys_teaches_nothing(
    notes: Notes, change: Callable[[Plan], Plan]
) -> None:
    assert await learned(notes, change(on_card()), *[reply(50.0)] * TOGETHER) == []


async def test_another_build_begins_anew(notes: Notes) -> None:
    learner, served = BandwidthLearner(notes), on_card()
    other = replace(served, engine_build="llama-server b10500")
    for one in (served, served, other, other):
        learner.learn(one, reply(50.0), WELL)
    await learner.close()
    assert notes.made == []


async def test_writing_never_holds_up_the_loop_and_runs_once_at_a_time(notes: Notes) -> None:
    begun, free, at_once, most = threading.Event(), threading.Event(), 0, 0

    def slow(build: str, place: str, bytes_per_s: float) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        begun.set()
        assert free.wait(10)
        at_once -= 1
        notes(build, place, bytes_per_s)

    learner = BandwidthLearner(slow)
    for _ in range(TOGETHER):
        learner.learn(on_card(), reply(50.0), WELL)
    assert await asyncio.to_thread(begun.wait, 10)
    for _ in range(3 * TOGETHER):
        learner.learn(on_card(), reply(60.0), WELL)
    free.set()
    await learner.close()
    assert most == 1
    assert len(notes.made) == 1


async def test_a_failing_disk_costs_the_lesson_and_nothing_else(
    notes: Notes, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(build: str, place: str, bytes_per_s: float) -> None:
        raise OSError(28, "No space left on device")

    learner = BandwidthLearner(broken)
    for _ in range(TOGETHER):
        learner.learn(on_card(), reply(50.0), WELL)
    await learner.close()
    assert "could not be kept" in caplog.text


async def test_the_next_plan_finds_it_in_the_lessons(tmp_path: Path) -> None:
    lessons = Lessons(tmp_path / "learned.json")
    learner = BandwidthLearner(lessons.note_bandwidth)
    for _ in range(TOGETHER):
        learner.learn(on_card(), reply(50.0), WELL)
    await learner.close()
    found = lessons.bandwidth("llama-server b10434", "CUDA0")
    assert found == pytest.approx(200e9, rel=0.01)


async def test_the_local_side_tells_both_the_journal_and_the_lessons(
    shelf: Shelf, notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("appliance.hardware.host.battery", lambda: None)  # a desktop, wherever this runs
    monitor, learner = Monitor(Governor()), BandwidthLearner(notes)
    pool, here = pool_of(shelf.library)
    serving = pool.seat(shelf.library.resolve("a")).serving
    local = LocalSide(shelf.library, pool, here, monitor, learner)
    served = Served("a", "a:F32", ("chat",), True)
    assert local.conditions(served) == Conditions(), "nobody has looked yet"
    await monitor.start()
    try:
        await shelf.until(lambda: monitor.snapshot.ram_total is not None)
        serving._set(ServingSnapshot(ref=shelf.library.resolve("a"), state="ready", plan=on_card()))
        now = local.conditions(served)
        assert now == Conditions(None, "ac", "llama-server b10434/33/f16")
        other = Served("b", "b:F32", ("chat",), True)
        assert local.conditions(other).plan is None, "another model's plan says nothing"
        for _ in range(TOGETHER):
            local.finished(other, reply(50.0))
        await learner.close()
        assert notes.made == []
        for _ in range(TOGETHER):
            local.finished(served, reply(50.0))
        await learner.close()
        assert [note[:2] for note in notes.made] == [("llama-server b10434", "CUDA0")]
    finally:
        await pool.stop()
        await monitor.stop()


def test_what_is_not_known_of_the_machine_is_none() -> None:
    cool = Pressure("cool", 1.0)
    assert conditions_of(Pressure("unknown", 1.0), MonitorSnapshot(), None) == Conditions(None, None)
    assert conditions_of(cool, MonitorSnapshot(power="battery"), None) == Conditions("cool", "battery")


def test_the_key_of_a_plan_changes_with_what_decides_its_speed() -> None:
    made = on_card()
    others = [
        replace(made, engine_build="llama-server b1"), replace(made, gpu_layers=3),
        replace(made, kv_type="q8_0"), replace(made, cpu_moe=4), replace(made, split="row"),
        replace(made, draft="gpu"), replace(made, draft="cpu"),
    ]  # fmt: skip
    assert len({plan_key(one) for one in (made, *others)}) == len(others) + 1
    assert plan_key(replace(made, ctx=4_096, parallel=3)) == plan_key(made)
