"""The flight recorder: a row per second and device, gaps where nothing was seen, no text of a request."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from appliance.daemon.heat_events import HeatEvents
from appliance.daemon.points import Load
from appliance.daemon.recorder import MOST_DECISIONS, Recorder
from appliance.hardware.sensors import CpuSample, GpuSample, Sample
from appliance.hardware.types import Battery
from appliance.journal import Journal
from appliance.journal.timeline import Decided, Point
from appliance.monitor import Change, CpuView, DeviceHeat, MonitorSnapshot
from appliance.monitor.governor.readings import of_sample
from appliance.monitor.snapshot import cpu_view, gpu_view
from appliance.routing import Decision, Features, LocalView, RemoteView, View, after_failure, decide

NOON = 1_777_896_000.0
GPU = GpuSample(
    "GPU-1", 0, "RTX", "cuda", total=8, free=2, temperature=91.0, slowdown_at=90.0, headroom=-1.0,
    reasons=0x24 | 0x800, counters={"sw_thermal": 7, "hw_thermal": 5, "power_cap": 99}, clock=900.0,
)  # fmt: skip
LOST = GpuSample("GPU-1", 0, "RTX", "cuda", trouble="gpu_lost")
CPU = CpuSample("i7", 99.0, high_at=95.0, critical_at=105.0, throttled_ns=40)
LOCAL = LocalView("ready", 1, 0, 0, 64, None, 4096, "cool", 1.0, serves=True)
SEEN = View("local-first", 8.0, 2.0, LOCAL, (RemoteView("vllm", True, True, 32_768),))


@dataclass
class Hands:
    """A clock that is set, and one that only goes on."""

    wall: float = NOON
    steady: float = 0.0
    load: Load = field(default_factory=lambda: Load(1, 2, 30.0))

    def go(self, seconds: float) -> None:
        self.wall += seconds
        self.steady += seconds


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    opened = Journal(tmp_path / "journal.sqlite", clock=lambda: NOON)
    await opened.open()
    yield opened
    await opened.close()


def machine(age_s: float | None = 0.0, **changes: Any) -> MonitorSnapshot:
    heat = DeviceHeat("throttled", factor=0.6)
    found = MonitorSnapshot(
        gpus=(gpu_view(GPU, heat, age_s, set()),), cpu=cpu_view(CPU, DeviceHeat("warm"), age_s),
        thermal="throttled", factor=0.6, ram_available=5, cpu_percent=12.5, active=True, age_s=age_s,
        battery=Battery(80.0, False), power="battery", swap_used=0,
    )  # fmt: skip
    return replace(found, **changes)


def recorder(journal: Journal, hands: Hands) -> Recorder:
    return Recorder(journal, lambda: hands.load, clock=lambda: hands.wall, steady=lambda: hands.steady)


async def entries(journal: Journal, kind: type) -> list[Any]:
    page = await journal.timeline(0, 2 * NOON, 10_000)
    return [entry for entry in page.entries if isinstance(entry, kind)]


async def test_what_the_governor_was_told_can_be_read_back(journal: Journal) -> None:
    made = recorder(journal, hands := Hands())
    made.on_sample(machine())
    await made.flush()
    by = {point.device: point for point in await entries(journal, Point)}
    told = of_sample(Sample(gpus=(GPU,), cpu=CPU))
    gpu, cpu, host = by["gpu:GPU-1"], by["cpu"], by["machine"]
    assert (gpu.headroom, gpu.margin, gpu.reasons, gpu.slowed_ns) == (-1.0, None, 0x824, 12)
    assert (told["GPU-1"].reasons, told["GPU-1"].slowed_ns) == (gpu.reasons, gpu.slowed_ns)
    assert (cpu.headroom, cpu.slowed_ns, cpu.critical_at) == (told["cpu"].headroom, 40, 105.0)
    assert (gpu.state, gpu.factor, gpu.power, gpu.total) == ("throttled", 0.6, None, 8)
    assert (host.state, host.plugged, host.battery_percent, host.swap_used) == ("throttled", False, 80.0, 0)
    assert (host.running, host.waiting, host.tokens_per_second) == (1, 2, 30.0)
    assert {point.at for point in by.values()} == {hands.wall}


@pytest.mark.parametrize("stale", [False, True])
async def test_a_factor_of_unknown_heat_is_unknown(journal: Journal, stale: bool) -> None:
    made = recorder(journal, Hands())
    gpu, cpu = gpu_view(GPU, DeviceHeat(), 0.0, set()), cpu_view(CPU, DeviceHeat(), 0.0)
    made.on_sample(machine(gpus=(gpu,), cpu=cpu, thermal="unknown", factor=1.0, stale=stale))
    await made.flush()
    found = {point.device: (point.state, point.factor) for point in await entries(journal, Point)}
    assert found.pop("cpu", ("unknown", None)) == ("unknown", None)
    assert found == {"gpu:GPU-1": ("unknown", None), "machine": ("unknown", None)}


async def test_a_second_has_one_row_whatever_the_pace(journal: Journal) -> None:
    made = recorder(journal, hands := Hands())
    for _ in range(40):
        made.on_sample(machine())
        hands.go(0.25)
    await made.flush()
    assert len([p for p in await entries(journal, Point) if p.device == "gpu:GPU-1"]) == 10


@pytest.mark.parametrize(
    "seen",
    [
        machine(age_s=None, active=False),
        machine(gpus=(replace(machine().gpus[0], watched=False),), cpu=CpuView()),
        machine(gpus=(replace(machine().gpus[0], asleep=True),), cpu=None),
    ],
    ids=["no engine", "not watched", "asleep"],
)
async def test_what_is_not_read_has_a_gap(journal: Journal, seen: MonitorSnapshot) -> None:
    made = recorder(journal, Hands())
    made.on_sample(seen)
    await made.flush()
    assert [point.device for point in await entries(journal, Point)] == ["machine"]


@pytest.mark.parametrize(
    "seen",
    [
        machine(age_s=4.0, stale=True, cpu=None),
        machine(gpus=(gpu_view(LOST, DeviceHeat("throttled", factor=0.6), 0.0, set()),), cpu=None),
    ],
    ids=["silent sensors", "lost"],
)
async def test_what_somebody_could_not_read_is_a_row_without_figures(
    journal: Journal, seen: MonitorSnapshot
) -> None:
    """A replay has to know that somebody looked: `throttled` stays while nobody can."""
    made = recorder(journal, Hands())
    made.on_sample(seen)
    await made.flush()
    found = next(point for point in await entries(journal, Point) if point.device == "gpu:GPU-1")
    assert (found.state, found.factor, found.name) == ("throttled", 0.6, "RTX")
    assert (found.temperature, found.headroom, found.reasons, found.free) == (None, None, None, None)


async def test_a_clock_that_is_set_back_leaves_no_second_past(journal: Journal) -> None:
    made = recorder(journal, hands := Hands(wall=NOON + 3_600))
    for second in range(20):
        made.on_sample(machine())
        hands.go(1.0)
        if second == 10:
            await made.flush()
    hands.wall -= 15.0  # by more than a correction
    for _ in range(3):
        made.on_sample(machine())
        hands.go(1.0)
    hands.wall -= 1.5  # by a correction: nothing is written twice
    made.on_sample(machine())
    await made.flush()
    at = [point.at - NOON - 3_600 for point in await entries(journal, Point) if point.device == "machine"]
    assert at == [0, 1, 2, 3, 4, 5, 6, 7]


async def test_a_decision_keeps_what_it_was_made_from(journal: Journal) -> None:
    made = recorder(journal, Hands())
    features = Features("qwen3-8b", prompt_tokens=90, local_fields=("grammar",))
    first = decide(features, SEEN)
    cause = "cannot parse: 'my secret prompt'\x1b[2J"
    free = replace(features, local_fields=())
    second = after_failure(free, SEEN, "local", cause)
    assert "secret" in second.detail
    made.decided("r1", features, SEEN, first)
    given = {"failed": "local", "remote": None}
    made.decided("r1", free, SEEN, second, moment="failed", given=given, cause=cause)
    await made.flush()
    one, two = await entries(journal, Decided)
    assert (one.request_id, one.moment, one.target, one.reason) == ("r1", "first", "local", "local.ok")
    assert one.features == {
        "model": "qwen3-8b", "wish": "auto", "lane": "interactive", "kind": "chat", "prompt_tokens": 90,
        "keyless_unknown_user": False, "local_fields": ["grammar"],
    }  # fmt: skip
    assert one.view["local"]["ctx"] == 4096
    assert one.view["remotes"][0]["name"] == "vllm"
    assert (two.moment, two.remote, two.given) == ("failed", "vllm", {"failed": "local"})
    assert "secret" not in json.dumps([two.detail, two.view, two.given])
    assert two.detail.startswith("The local engine failed before the first token. ")


async def test_what_has_no_room_is_counted(journal: Journal) -> None:
    made = recorder(journal, Hands())
    decision = Decision("local", "local.ok", "")
    for number in range(MOST_DECISIONS + 3):
        made.decided(f"r{number}", Features("m"), SEEN, decision)
    assert journal.lost == 3
    await made.flush()
    assert len(await entries(journal, Decided)) == MOST_DECISIONS


async def test_a_view_without_end_is_not_kept(journal: Journal) -> None:
    made = recorder(journal, Hands())
    many = replace(SEEN, remotes=tuple(RemoteView(f"r{n}", True, True, 1) for n in range(500)))
    made.decided("r1", Features("m"), many, Decision("local", "local.ok", "x" * 5_000))
    await made.flush()
    (one,) = await entries(journal, Decided)
    assert one.view == {}
    assert len(one.detail) <= 400


def test_telling_it_costs_a_request_nothing(tmp_path: Path) -> None:
    made = Recorder(Journal(tmp_path / "j.sqlite"))
    features, decision = Features("m"), Decision("local", "local.ok", "")
    before = time.process_time()
    for _ in range(2_000):
        made.decided("r", features, SEEN, decision)
    assert (time.process_time() - before) / 2_000 < 0.0001


@pytest.mark.parametrize("state", ["warm", "throttled", "critical"])
def test_heat_that_is_lost_sight_of_or_forgotten_is_told(state: Any) -> None:
    told: list[tuple[str, str | None, str, str | None]] = []
    HeatEvents(lambda *one: told.append(one)).changed(
        (Change("GPU-1", state, "unknown", "no engine heats it, so nobody looks"),), machine(power="unknown")
    )
    assert told == [
        ("thermal", "gpu:GPU-1", f"RTX is unknown, was {state}.", "No engine heats it, so nobody looks.")
    ]


def test_changes_become_events() -> None:
    told: list[tuple[str, str | None, str, str | None]] = []
    events = HeatEvents(lambda *one: told.append(one))
    seen = machine(power="unknown", eases=None)
    events.changed((Change("GPU-1", "unknown", "cool", "first reading"),), seen)
    assert told == []
    events.changed((Change("GPU-1", "cool", "critical", "91 of 90"),), replace(seen, power="ac"))
    events.changed((Change("cpu", "critical", "cool", "cool again"),), replace(seen, power="ac", eases="hot"))
    events.changed((), replace(seen, power="battery", eases="hotter"))
    events.changed((), replace(seen, power="ac"))
    assert told == [
        ("thermal", "gpu:GPU-1", "RTX is critical, was cool.", "91 of 90."),
        ("thermal", "cpu", "The CPU is cool, was critical.", "Cool again."),
        ("easing", None, "Batch work waits first.", "Hot."),
        ("power", None, "The machine runs on battery, 80 % left.", None),
        ("power", None, "The machine is on mains power.", None),
        ("easing", None, "Batch work goes on as usual.", None),
    ]
