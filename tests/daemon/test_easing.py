"""How the machine is spared: from heat, power and settings to the queues and the loads."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from appliance.daemon.easing import Easer, easing_of, no_loads_ahead
from appliance.daemon.queues import batch_notes, together
from appliance.errors import EngineUnavailable
from appliance.gateway.admission import Admission, Easing
from appliance.monitor import MonitorSnapshot
from appliance.paths import Paths
from appliance.settings import Governor
from tests.daemon.pool_house import PoolHouse, pool_house, sees
from tests.engines.fake_engine import install
from tests.engines.launches import paths_in

HEAT = "heat slows the machine"
BATTERY = "the machine runs on battery"
CRITICAL = "the machine is critically hot"


@pytest.mark.parametrize(
    ("seen", "battery", "easing", "ahead"),
    [
        ({}, "full", None, ""),
        ({"thermal": "warm"}, "saver", None, ""),
        ({"thermal": "throttled", "eases": HEAT}, "full", Easing(HEAT, 30.0), ""),
        ({"thermal": "critical", "eases": CRITICAL}, "full", Easing(CRITICAL, 30.0, stops=True), CRITICAL),
        ({"thermal": "critical"}, "full", Easing(CRITICAL, 30.0, stops=True), CRITICAL),
        ({"power": "battery"}, "full", None, ""),
        (
            {"power": "battery"}, "saver", Easing(BATTERY, 30.0, at_once=1),
            f"{BATTERY} (governor.battery is saver)",
        ),
        ({"power": "battery"}, "remote", None, f"{BATTERY} (governor.battery is remote)"),
        ({"power": "ac"}, "saver", None, ""),
        ({"power": "unknown"}, "saver", None, ""),
        ({"power": "unknown"}, "remote", None, ""),
        (
            {"power": "battery", "thermal": "critical", "eases": CRITICAL}, "saver",
            Easing(CRITICAL, 30.0, at_once=1, stops=True), CRITICAL,
        ),
    ],
)  # fmt: skip
def test_what_is_spared(seen: dict[str, Any], battery: Any, easing: Easing | None, ahead: str) -> None:
    governor, shot = Governor(dwell=30.0, battery=battery), MonitorSnapshot(**seen)
    assert easing_of(shot, governor) == easing
    assert no_loads_ahead(shot, governor) == ahead


@pytest.fixture
def paths() -> Iterator[Paths]:
    """With a short path: sockets lie in it."""
    folder = Path(tempfile.mkdtemp(prefix="appl"))
    yield paths_in(folder)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def models(smollm2_path: Path, paths: Paths, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Two models of the same bytes, and an engine for them."""
    sees(monkeypatch, install(paths.data / "fake"))
    found = {name: paths.data / f"{name}.gguf" for name in ("ant", "bee")}
    for file in found.values():
        shutil.copy(smollm2_path, file)
    return found


class Machine:
    """What the monitor would see, and the settings."""

    def __init__(self, home: PoolHouse) -> None:
        self.seen, self.governor = MonitorSnapshot(), Governor()
        self.easer = Easer(home.pool, lambda: self.seen, lambda: self.governor)

    def turns(self, battery: Any = None, **seen: Any) -> None:
        self.seen = replace(MonitorSnapshot(), **seen)
        self.governor = Governor(battery=battery or "full")
        self.easer.apply()


async def test_every_queue_is_spared_those_of_new_models_included(
    paths: Paths, models: dict[str, Path]
) -> None:
    async with pool_house(paths, models) as home:
        machine, ant = Machine(home), home.pool.seat(home.ref("ant"))
        machine.turns(eases=HEAT, thermal="throttled")
        bee = home.pool.seat(home.ref("bee"))
        assert [seat.queue.easing for seat in (ant, bee)] == [Easing(HEAT, 60.0)] * 2
        with bee.queue.enter("batch"), bee.queue.enter("batch") as second:
            seen = home.local.view(home.served("bee"))
            assert seen is not None
            assert (seen.eases, seen.batch_waiting, seen.batch_wait_s) == (HEAT, 1, None)
            assert not second.held
            machine.turns()
            assert (ant.queue.easing, bee.queue.easing) == (None, None)
            bee.queue.resize(2)
            assert second.held


async def test_on_battery_the_router_sees_one_at_a_time_and_the_engine_keeps_its_slots(
    paths: Paths, models: dict[str, Path]
) -> None:
    async with pool_house(paths, models) as home:
        machine = Machine(home)
        await home.pool.load(home.ref("ant"))
        machine.turns("saver", power="battery")
        seen = home.local.view(home.served("ant"))
        assert seen is not None
        assert (seen.slots, seen.at_once, seen.eases) == (2, 1, BATTERY)
        queue = home.local.queue_snapshot()
        assert queue is not None
        assert queue.easing is not None
        assert queue.easing.why == BATTERY
        home.pool.use(home.library)
        machine.turns("saver", power="ac")
        seen = home.local.view(home.served("ant"))
        assert seen is not None
        assert (seen.slots, seen.at_once, seen.eases) == (2, None, "")


async def test_on_battery_nothing_is_loaded_before_a_request_wants_it(
    paths: Paths, models: dict[str, Path]
) -> None:
    async with pool_house(paths, models) as home:
        machine = Machine(home)
        machine.turns("saver", power="battery")
        with pytest.raises(EngineUnavailable, match="bee:Q4 is not loaded before a request wants it"):
            await home.pool.preload(home.ref("bee"))
        home.local.missed(home.served("bee"))
        assert await home.ask("ant") == 200, "what a request wants is loaded"
        machine.turns("saver", power="ac")
        await home.pool.preload(home.ref("ant"))
        assert home.loads == ["ant"], "an old miss is forgotten"
        await home.pool.preload(home.ref("bee"))
        assert home.resident() == {"ant", "bee"}


async def test_on_a_critical_machine_no_request_loads_a_model_and_a_person_can(
    paths: Paths, models: dict[str, Path]
) -> None:
    async with pool_house(paths, models) as home:
        machine = Machine(home)
        machine.turns(thermal="critical", eases=CRITICAL)
        asked = asyncio.create_task(home.ask("bee"))
        await home.until(lambda: home.pool.seat(home.ref("bee")).wanted == 1)
        await home.pool.load(home.ref("ant"))
        assert home.loads == ["ant"], "the pool has looked, and bee was not loaded"
        machine.turns()
        assert await asked == 200
        assert home.loads == ["ant", "bee"]


async def test_a_plug_that_is_pulled_has_those_who_wait_decided_again(
    paths: Paths, models: dict[str, Path]
) -> None:
    async with pool_house(paths, models) as home:
        machine, queue = Machine(home), home.pool.seat(home.ref("ant")).queue
        with queue.enter("interactive"), queue.enter("interactive") as second:
            assert await second.wait(0.0) is False
            machine.turns("remote", power="battery")
            assert await second.wait(None) is False, "it waits no longer for a slot alone"
            machine.turns("remote", power="battery")
            assert await second.wait(0.0) is False
            machine.turns("full", power="battery")
            assert await second.wait(None) is False


def test_a_note_tells_that_batch_work_waits_and_why() -> None:
    busy, idle = Admission(1, 5), Admission(1, 5)
    waits = [busy.enter("interactive"), busy.enter("batch"), busy.enter("batch")]
    seen = together([busy.snapshot, idle.snapshot], idle.snapshot)
    assert batch_notes(seen) == (), "as usual"
    for queue in (busy, idle):
        queue.ease(Easing(HEAT, 60.0))
    (note,) = batch_notes(together([busy.snapshot, idle.snapshot], idle.snapshot))
    assert (note.code, note.detail) == ("batch_waits", f"Batch work waits first (2 now), since {HEAT}.")
    for place in waits[1:]:
        place.__exit__(None, None, None)
    assert batch_notes(busy.snapshot) == ()
    assert batch_notes(None) == ()
