"""The watch over a loaded engine: lessons once the driver has told, and a reload when memory was taken."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.daemon.replanning import AT_MOST_EVERY_S, LOW_FOR_S
from appliance.daemon.status import notes
from appliance.daemon.watching import DRIVER_TELLS_S, SETTLED_S, Beside, PlanWatch
from appliance.hardware import Gpu
from appliance.monitor import GpuView, MonitorSnapshot
from appliance.paths import Paths
from appliance.units import MIB
from tests.daemon import house as houses
from tests.daemon.house import SERVED, House, house, looks
from tests.engines.fake_engine import Script, install, starts
from tests.engines.launches import paths_in

LOADED = (
    "load_tensors: offloaded 31/31 layers to GPU",
    "load_tensors:        CUDA0 model buffer size =    91.00 MiB",
    "llama_kv_cache:      CUDA0 KV buffer size =   720.00 MiB",
    "sched_reserve:      CUDA0 compute buffer size =    90.00 MiB",
)
GPU = Gpu("GPU-1", 0, "Some GPU", "cuda")
VIEW = GpuView(
    "GPU-1", "Some GPU", "cuda", 8192 * MIB, 3000 * MIB, None, None, None, None, None, None, None, "cool", 0.1
)


class Watched:
    """A house with a card whose driver says what a test wants, on a clock that a test moves."""

    def __init__(self, home: House, folder: Path) -> None:
        self.home, self.folder = home, folder
        self.view, self.stale, self.now = VIEW, False, 1000.0
        self.others: Beside = frozenset()
        self.watch = PlanWatch(
            home.serving, home.lessons, monitor=self.monitor,
            quiet=lambda: home.pool.seat(home.ref).wanted == 0, clock=lambda: self.now,
            others=lambda: self.others,
        )  # fmt: skip

    def monitor(self) -> MonitorSnapshot:
        return MonitorSnapshot(gpus=(self.view,), active=True, age_s=0.5, stale=self.stale)

    async def see(
        self, seconds: float, *, free: int, ours: int | None, engines: tuple[tuple[int, int], ...] = ()
    ) -> None:
        """Look every two seconds of the test's clock. `engines`: MiB by pid."""
        self.view = replace(
            VIEW,
            free=free * MIB,
            used_by_engine=None if ours is None else ours * MIB,
            engines=tuple((pid, used * MIB) for pid, used in engines),
        )
        for _ in range(int(seconds // 2) + 1):
            await self.watch.look()
            self.now += 2


@pytest.fixture
def paths() -> Iterator[Paths]:
    folder = Path(tempfile.mkdtemp(prefix="appl"))
    yield paths_in(folder)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
async def watched(
    paths: Paths, smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Watched]:
    folder = paths.data / "fake"
    builds = [
        install(folder, Script(load_lines=LOADED), devices=[f"CUDA0: Some GPU (8192 MiB, {free} MiB free)"])
        for free in (3000, 1500)
    ]
    bare = houses.look_of

    def look_of(build: object) -> object:
        found = bare(build)  # type: ignore[arg-type]
        return replace(found, machine=replace(found.machine, gpus=(GPU,)))

    monkeypatch.setattr(houses, "look_of", look_of)
    looks(monkeypatch, builds)
    async with house(paths, smollm2_path) as home:
        await home.serving.load(home.ref)
        yield Watched(home, folder)


async def test_what_the_driver_takes_is_learned_once_its_figure_is_of_the_loaded_engine(
    watched: Watched,
) -> None:
    home, sha = watched.home, watched.home.ref.variant.main.sha256
    build = "llama-server 10434 (fake)"
    await watched.see(SETTLED_S - 4, free=1900, ours=100)
    assert home.lessons.of(sha, build) == {}, "a figure from the middle of the load"
    await watched.see(6, free=1800, ours=1101)
    learned = home.lessons.of(sha, build)["CUDA0"]
    assert learned.overhead == 200 * MIB
    assert learned.full is not None
    await watched.see(60, free=1700, ours=1901)
    assert home.lessons.of(sha, build)["CUDA0"].overhead == 200 * MIB, "once for each load"


async def test_a_driver_that_never_tells_is_not_waited_for_for_ever(watched: Watched) -> None:
    home, sha = watched.home, watched.home.ref.variant.main.sha256
    await watched.see(DRIVER_TELLS_S + 4, free=1800, ours=None)
    learned = home.lessons.of(sha, "llama-server 10434 (fake)")["CUDA0"]
    assert (learned.overhead, learned.full is None) == (None, False)


async def test_memory_taken_while_idle_brings_a_smaller_plan_and_says_why(watched: Watched) -> None:
    home = watched.home
    before = home.serving.snapshot.plan
    await watched.see(4, free=1800, ours=1100)
    home.told.clear()
    await watched.see(LOW_FOR_S + 4, free=150, ours=1100)
    now = home.serving.snapshot
    assert before is not None
    assert now.plan is not None
    assert (now.state, now.ref) == ("ready", home.ref)
    assert now.plan.devices[0].needed < before.devices[0].needed
    assert starts(watched.folder) == 2
    assert home.states() == ["starting", "loading", "ready"], "who asks meanwhile waits"
    (note,) = (one for one in notes(now, MonitorSnapshot()) if one.code == "replanned")
    assert "1.6" in note.detail or "1650" in note.detail
    assert "CUDA0" in note.detail
    await watched.see(AT_MOST_EVERY_S - 60, free=10, ours=700)
    assert starts(watched.folder) == 2, "not again so soon"


async def test_a_running_request_keeps_its_engine(watched: Watched) -> None:
    home = watched.home
    await watched.see(4, free=1800, ours=1100)
    with home.local.busy(SERVED):
        await watched.see(60, free=150, ours=1100)
        assert starts(watched.folder) == 1


async def test_old_sensor_values_move_nothing(watched: Watched) -> None:
    await watched.see(4, free=1800, ours=1100)
    watched.stale = True
    await watched.see(60, free=150, ours=1100)
    assert starts(watched.folder) == 1


async def test_what_is_as_large_with_what_is_left_stays(watched: Watched) -> None:
    await watched.see(4, free=6000, ours=1100)
    await watched.see(60, free=250, ours=5000)
    assert starts(watched.folder) == 1, "with its own memory back, the same plan would be made"


NEIGHBOUR = frozenset({(4711, True)})


async def test_a_model_of_ours_that_is_loaded_beside_it_is_no_other_program(watched: Watched) -> None:
    await watched.see(4, free=1800, ours=1100)
    watched.others = frozenset({(4711, False)})
    await watched.see(4, free=900, ours=1100)  # the driver's list of processes is read later
    await watched.see(90, free=150, ours=1100)
    watched.others = NEIGHBOUR
    await watched.see(60, free=150, ours=2750)
    await watched.see(60, free=100, ours=2800)
    assert starts(watched.folder) == 1


async def test_where_the_driver_does_not_tell_a_neighbour_is_not_suspected(watched: Watched) -> None:
    watched.others = NEIGHBOUR
    await watched.see(30, free=1800, ours=None)
    await watched.see(60, free=150, ours=None)
    assert starts(watched.folder) == 1


async def test_beside_a_neighbour_other_programs_still_count(watched: Watched) -> None:
    pid = watched.home.serving.snapshot.engine.pid  # type: ignore[union-attr]
    assert pid is not None
    watched.others, both = NEIGHBOUR, ((pid, 1100), (4711, 2000))
    await watched.see(SETTLED_S + 4, free=1800, ours=3100, engines=both)
    await watched.see(LOW_FOR_S + 4, free=150, ours=3100, engines=both)
    now = watched.home.serving.snapshot.plan
    assert (starts(watched.folder), now is not None) == (2, True)
    assert now is not None
    assert now.devices[0].needed <= (150 + 1100) * MIB, "what the neighbour holds does not come back"


async def test_what_a_neighbour_takes_is_not_learned_as_this_models_need(watched: Watched) -> None:
    home, pid = watched.home, watched.home.serving.snapshot.engine.pid  # type: ignore[union-attr]
    assert pid is not None
    watched.others = NEIGHBOUR
    await watched.see(SETTLED_S + 4, free=1800, ours=3101, engines=((pid, 1101), (4711, 2000)))
    learned = home.lessons.of(home.ref.variant.main.sha256, "llama-server 10434 (fake)")["CUDA0"]
    assert learned.overhead == 200 * MIB
