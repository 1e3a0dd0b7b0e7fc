"""A load says how long it will take and what it took, and its files are read ahead of the engine."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.daemon import load_clock
from appliance.daemon.load_clock import LoadClock
from appliance.daemon.served import load_row
from appliance.engines import Build
from appliance.errors import EngineFailed
from appliance.operations import start_estimate
from appliance.operations.lessons.load_times import RememberedLoads
from appliance.operations.start_estimate import estimate_for
from appliance.paths import Paths
from tests.daemon.house import house, looks
from tests.engines.fake_engine import Script, install
from tests.engines.launches import build, paths_in, without_devices
from tests.engines.startup.files import END_S, Gate, drop

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs to know what is in RAM")
CARD = "CUDA0: Some GPU (8192 MiB, 8000 MiB free)"
ON_GPU = (
    "load_tensors: offloaded 31/31 layers to GPU",
    "load_tensors:        CUDA0 model buffer size =    90.00 MiB",
)


@pytest.fixture
def paths() -> Iterator[Paths]:
    """With a short path: sockets lie in it."""
    folder = Path(tempfile.mkdtemp(prefix="appl"))
    yield paths_in(folder)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def model(tmp_path: Path, smollm2_path: Path) -> Path:
    """A copy that nobody else reads, so that it can be taken out of RAM."""
    return Path(shutil.copy(smollm2_path, tmp_path / "SmolLM2.gguf"))


def fake(paths: Paths, *scripts: Script) -> Build:
    return install(paths.data / "fake", *scripts, devices=[CARD])


async def test_a_real_load_is_measured_and_the_next_one_is_known_before_it_begins(
    paths: Paths, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks(monkeypatch, [build("xllamacpp")])
    with without_devices():
        async with house(paths, model) as home:
            assert await estimate_for(home.library, home.ref) is None, "nothing was ever loaded"
            drop(model)
            await home.serving.load(home.ref)
            cold = home.serving.snapshot.load_times
            assert cold is not None
            assert cold.cached is not None
            assert cold.cached < 0.05
            assert cold.ahead.preheat
            assert cold.read.n_bytes + cold.read.passed_over == cold.n_bytes
            parts = cold.prove_s + cold.look_s + cold.plan_s + cold.engine_s
            assert 0 < cold.engine_s < parts <= cold.total_s
            assert load_row(home.serving.snapshot)["load_bytes_per_s"] == pytest.approx(
                home.ref.variant.size / cold.total_s, rel=0.06
            )

            home.told.clear()
            await home.serving.restart()
            first = next(one for one in home.told if one.load_estimate is not None)
            assert (first.state, first.plan, first.load_times) == ("starting", None, None)
            assert first.load_estimate is not None
            warm = home.serving.snapshot.load_times
            assert warm is not None
            assert warm.bytes_per_s is None, "nothing came from the disk"
            assert not warm.ahead.preheat
            after = await estimate_for(home.library, home.ref)
            assert after is not None
            assert after.how == "seen"
            assert after.seconds == pytest.approx(warm.total_s)
    known = RememberedLoads(paths.load_times).known(home.ref.variant.main.sha256)
    assert known.cold is not None
    assert known.cold.seconds == pytest.approx(cold.total_s)


async def test_without_spare_ram_nothing_is_read_ahead(
    paths: Paths, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks(monkeypatch, [fake(paths, Script())])
    monkeypatch.setattr(start_estimate, "spare_ram", lambda: 200 << 20)
    async with house(paths, model) as home:
        drop(model)
        await home.serving.load(home.ref)
        times = home.serving.snapshot.load_times
        assert times is not None
        assert not times.ahead.preheat
        assert "200.0 MiB of RAM to spare" in times.ahead.reason
        assert times.read.n_bytes == 0


@pytest.mark.parametrize(("spare", "mode"), [(200 << 20, "none"), (8 << 30, "auto")])
async def test_a_file_for_the_gpu_that_does_not_fit_into_ram_is_not_mapped(
    paths: Paths, model: Path, monkeypatch: pytest.MonkeyPatch, spare: int, mode: str
) -> None:
    looks(monkeypatch, [fake(paths, Script(load_lines=ON_GPU))])
    monkeypatch.setattr(start_estimate, "spare_ram", lambda: spare)
    async with house(paths, model) as home:
        drop(model)
        await home.serving.load(home.ref)
        plan, engine = home.serving.snapshot.plan, home.serving.engine
        assert plan is not None
        assert plan.gpu_layers == 31
        assert engine is not None
        assert engine.launch.load_mode == mode


async def test_a_load_that_fails_reads_no_further_and_teaches_nothing(
    paths: Paths, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Gate] = []

    class Kept(Gate):
        def start(self) -> None:
            made.append(self)
            super().start()

    monkeypatch.setattr(load_clock, "Preheat", Kept)
    looks(monkeypatch, [fake(paths, Script(die_at_start=1))])
    async with house(paths, model) as home:
        drop(model)
        with pytest.raises(EngineFailed):
            await home.serving.load(home.ref)
        (reader,) = made
        assert reader.reached.wait(END_S)
        reader.go_on.set()
        assert reader.join(END_S)
        assert reader.report.n_bytes == 0
        assert not reader.report.whole
        assert home.serving.snapshot.load_times is None
    assert not paths.load_times.exists()


async def test_a_load_whose_memory_ran_out_on_the_way_is_no_measure_of_the_next(
    paths: Paths, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks(monkeypatch, [fake(paths, Script(load_lines=ON_GPU, die_loading=-signal.SIGKILL), Script())])
    async with house(paths, model) as home:
        try:
            await home.serving.load(home.ref)
        except EngineFailed:
            assert home.serving.snapshot.load_times is None
        else:
            times = home.serving.snapshot.load_times
            assert times is not None
            assert times.attempts > 1
    assert not paths.load_times.exists()


def test_a_clock_adds_up_phases_and_counts_the_one_that_raised() -> None:
    now = iter([0.0, 1.0, 3.0, 4.0, 9.0, 10.0])
    clock = LoadClock(lambda: next(now))
    with clock.phase("look"):
        pass
    with pytest.raises(ValueError, match="it broke"), clock.phase("look"):
        raise ValueError("it broke")
    assert (clock.spent("look"), clock.spent("plan")) == (7.0, 0.0)
    assert clock.total == 10.0


async def test_what_the_status_tells_can_be_written_as_json(
    paths: Paths, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks(monkeypatch, [fake(paths, Script())])
    async with house(paths, model) as home:
        assert set(load_row(home.serving.snapshot).values()) == {None}
        await home.serving.load(home.ref)
        json.dumps(load_row(home.serving.snapshot), allow_nan=False)
