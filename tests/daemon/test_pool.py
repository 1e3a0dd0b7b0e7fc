"""Many models, one budget: loaded when a request names them, and gone when others need their bytes."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.errors import DoesNotFit, EngineFailed
from appliance.operations.plans.plan import Wishes
from appliance.paths import Paths
from tests.daemon.pool_house import pool_house, sees
from tests.engines.fake_engine import Script, install, left, starts
from tests.engines.launches import paths_in

SMALL = {"models": {"memory": "400MiB"}}
"""One of the models at a time: each takes about 280 MiB with 2 slots of 1,024 tokens."""


@pytest.fixture
def paths() -> Iterator[Paths]:
    """With a short path: sockets lie in it."""
    folder = Path(tempfile.mkdtemp(prefix="appl"))
    yield paths_in(folder)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def models(smollm2_path: Path, paths: Paths) -> dict[str, Path]:
    """Three models of the same bytes."""
    found = {}
    for name in ("ant", "bee", "cat"):
        found[name] = paths.data / f"{name}.gguf"
        shutil.copy(smollm2_path, found[name])
    return found


def engine(paths: Paths, monkeypatch: pytest.MonkeyPatch, *scripts: Script) -> Path:
    folder = paths.data / "fake"
    sees(monkeypatch, install(folder, *scripts))
    return folder


async def test_a_request_loads_the_model_that_it_names_and_both_stay_while_there_is_room(
    paths: Paths, models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = engine(paths, monkeypatch)
    async with pool_house(paths, models) as home:
        assert await home.ask("ant") == 200
        assert await home.ask("bee") == 200
        assert home.resident() == {"ant", "bee"}
        assert await home.ask("ant") == 200
        assert home.loads == ["ant", "bee"]
        assert home.pool.default is home.pool.find("ant:Q4"), "the first that was loaded"
    assert left(folder) == []


async def test_when_bytes_are_needed_the_least_recently_used_goes(
    paths: Paths, models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = engine(paths, monkeypatch)
    async with pool_house(paths, models, sections={"models": {"memory": "700MiB"}}) as home:
        for name in ("ant", "bee", "ant", "cat"):
            assert await home.ask(name) == 200
        assert home.resident() == {"ant", "cat"}
        assert home.events == [("evicted", "bee")]
        assert await home.ask("bee") == 200
        assert home.resident() == {"cat", "bee"}
    assert starts(folder) == 4
    assert left(folder) == []


async def test_a_pinned_model_stays_and_who_does_not_fit_beside_it_is_told_so(
    paths: Paths, models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine(paths, monkeypatch)
    pinned = {"models": {"memory": "400MiB", "pinned": ["ant"]}}
    async with pool_house(paths, models, sections=pinned) as home:
        assert await home.ask("ant") == 200
        assert await home.ask("bee") == 503
        assert home.resident() == {"ant"}
        seat = home.pool.find("bee:Q4")
        assert seat is not None
        error = seat.serving.snapshot.error
        assert isinstance(error, DoesNotFit)
        assert "ant:Q4" in error.message
        view = home.local.view(home.served("bee"))
        assert view is not None
        assert view.state == "failed"
        assert view.retry_s is not None
        assert view.retry_s > 0


async def test_twenty_clients_of_one_cold_model_cause_one_load(
    paths: Paths, models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = engine(paths, monkeypatch, Script(load_s=0.5))
    async with pool_house(paths, models) as home:
        assert await asyncio.gather(*(home.ask("ant") for _ in range(20))) == [200] * 20
        assert starts(folder) == 1
        assert home.loads == ["ant"]


async def test_a_load_that_nobody_waits_for_any_more_is_given_up(
    paths: Paths, models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = engine(paths, monkeypatch, Script(load_s=30.0), Script())
    async with pool_house(paths, models) as home:
        asked = [asyncio.create_task(home.ask("ant")) for _ in range(3)]
        await home.until(lambda: home.state("ant") == "loading" and starts(folder) == 1)
        for task in asked[:2]:
            task.cancel()
        await asyncio.gather(*asked[:2], return_exceptions=True)
        assert home.state("ant") == "loading", "one still waits"
        asked[2].cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        await home.until(lambda: home.state("ant") == "absent", 10.0)
        assert left(folder) == []
        assert await home.ask("ant") == 200, "the next one loads it again"


async def test_a_request_that_runs_is_not_cut_short_by_one_for_another_model(
    paths: Paths, models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine(paths, monkeypatch)
    async with pool_house(paths, models, sections=SMALL) as home:
        gate = asyncio.Event()
        assert await home.ask("ant") == 200
        first = asyncio.create_task(home.ask("ant", hold=gate.wait()))
        await home.until(lambda: home.state("ant") == "busy")
        second = asyncio.create_task(home.ask("bee"))
        await home.until(lambda: home.pool.seat(home.ref("ant")).queue.held, 10.0)
        later = asyncio.create_task(home.ask("ant"))
        assert home.state("ant") == "busy"
        gate.set()
        assert await first == 200
        assert await second == 200
        assert await later == 200, "its turn comes again"
        assert home.loads == ["ant", "bee", "ant"]


async def test_a_request_that_gave_up_lets_the_other_model_go_on(
    paths: Paths, models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine(paths, monkeypatch)
    async with pool_house(paths, models, sections=SMALL) as home:
        gate = asyncio.Event()
        assert await home.ask("ant") == 200
        first = asyncio.create_task(home.ask("ant", hold=gate.wait()))
        await home.until(lambda: home.state("ant") == "busy")
        second = asyncio.create_task(home.ask("bee"))
        await home.until(lambda: home.pool.seat(home.ref("ant")).queue.held, 10.0)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        assert await home.ask("ant") == 200, "beside the one that still runs"
        gate.set()
        assert await first == 200
        assert home.loads == ["ant"]


async def test_eight_clients_of_two_models_that_do_not_fit_together_are_served_in_turns(
    paths: Paths, models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine(paths, monkeypatch, Script(token_s=0.01))
    async with pool_house(paths, models, sections=SMALL) as home:
        began = asyncio.get_running_loop().time()

        async def client(name: str) -> list[int]:
            return [await home.ask(name) for _ in range(12)]

        found = await asyncio.gather(*(client(name) for name in ["ant", "bee"] * 4))
        took = asyncio.get_running_loop().time() - began
        assert [status for one in found for status in one] == [200] * 96
        assert len(home.loads) <= took / 0.5 + 2, f"{len(home.loads)} loads in {took:.1f} s"
        assert len(home.loads) < 24, "many requests for each swap"


async def test_a_model_that_nobody_uses_is_unloaded_and_comes_back_when_it_is_named(
    paths: Paths, models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = engine(paths, monkeypatch)
    async with pool_house(paths, models, sections={"models": {"keep_alive": "0.4s"}}) as home:
        await home.pool.load(home.ref("ant"))
        await home.until(lambda: home.state("ant") == "absent", 10.0)
        assert home.events == [("unused", "ant")]
        assert left(folder) == []
        assert await home.ask("ant") == 200


async def test_after_a_person_stopped_the_engines_requests_load_nothing(
    paths: Paths, models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = engine(paths, monkeypatch)
    async with pool_house(paths, models) as home:
        await home.pool.load(home.ref("ant"))
        await home.ask("bee")
        await home.pool.halt()
        assert home.resident() == set()
        assert left(folder) == []
        assert await home.ask("ant") == 503
        assert home.local.view(home.served("cat")) is None
        await home.pool.restart()
        assert home.resident() == {"ant"}
        assert await home.ask("bee") == 200


async def test_a_preload_displaces_nobody(
    paths: Paths, models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine(paths, monkeypatch)
    async with pool_house(paths, models, sections={"models": {"memory": "700MiB"}}) as home:
        await home.pool.load(home.ref("ant"))
        for name in ("bee", "cat"):
            await home.pool.preload(home.ref(name))
        assert home.resident() == {"ant", "bee"}
        assert home.events == []


async def test_a_model_that_a_remote_answered_for_is_loaded_for_the_next_request_if_there_is_room(
    paths: Paths, models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine(paths, monkeypatch)
    async with pool_house(paths, models, sections={"models": {"memory": "700MiB"}}) as home:
        await home.pool.load(home.ref("ant"))
        home.local.missed(home.served("bee"))
        await home.until(lambda: home.state("bee") == "ready", 20.0)
        home.local.missed(home.served("cat"))
        assert await home.ask("ant") == 200
        assert home.resident() == {"ant", "bee"}
        assert home.state("cat") == "absent"


async def test_a_person_who_unloads_a_model_ends_its_load(
    paths: Paths, models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = engine(paths, monkeypatch, Script(load_s=30.0))
    async with pool_house(paths, models) as home:
        load = asyncio.create_task(home.pool.load(home.ref("ant")))
        await home.until(lambda: home.state("ant") == "loading")
        await home.pool.unload(home.pool.seat(home.ref("ant")))
        with pytest.raises(Exception, match="unloaded while it was being loaded"):
            await load
        assert home.state("ant") == "absent"
        assert left(folder) == []


async def test_a_load_that_fails_is_left_alone_for_a_while_and_can_always_be_left(
    paths: Paths, models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = engine(paths, monkeypatch, Script(die_loading=3), Script())
    async with pool_house(paths, models) as home:
        assert await asyncio.gather(*(home.ask("ant") for _ in range(3))) == [503] * 3
        assert starts(folder) == 1, "who comes after a failure does not load it again at once"
        view = home.local.view(home.served("ant"))
        assert view is not None
        assert view.state == "failed"
        assert "exit code 3" in view.detail
        assert isinstance(home.pool.seat(home.ref("ant")).serving.snapshot.error, EngineFailed)
        await home.pool.load(home.ref("ant"))
        assert await home.ask("ant") == 200


async def test_a_restart_while_requests_wait_loads_once_and_answers_them(
    paths: Paths, models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = engine(paths, monkeypatch, Script(), Script(load_s=1.0), Script())
    async with pool_house(paths, models) as home:
        assert await home.ask("ant") == 200
        restart = asyncio.create_task(home.pool.restart(home.pool.seat(home.ref("ant"))))
        await home.until(lambda: starts(folder) == 2)
        asked = [asyncio.create_task(home.ask("ant")) for _ in range(3)]
        await restart
        assert await asyncio.gather(*asked) == [200] * 3
        assert starts(folder) == 2, "requests that waited for the restart cause no load of their own"
        assert home.state("ant") in ("ready", "busy")


async def test_a_load_without_wishes_keeps_what_was_asked_for_before(
    paths: Paths, models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine(paths, monkeypatch)
    async with pool_house(paths, models, sections={"engine": {"ctx": 1024}}) as home:
        await home.pool.load(home.ref("ant"), Wishes(parallel=3))
        await home.pool.load(home.ref("ant"))
        plan = home.pool.seat(home.ref("ant")).serving.snapshot.plan
        assert plan is not None
        assert plan.parallel == 3


async def test_a_budget_that_is_lowered_unloads_and_one_that_is_raised_lets_in_at_once(
    paths: Paths, models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine(paths, monkeypatch)
    async with pool_house(paths, models) as home:
        assert await home.ask("ant") == 200
        assert await home.ask("bee") == 200
        home.budget("400MiB")
        await home.until(lambda: home.resident() == {"bee"}, 20.0)
        home.budget("100MiB")
        await home.until(lambda: home.resident() == set(), 20.0)
        assert await home.ask("ant") == 503
        error = home.pool.seat(home.ref("ant")).serving.snapshot.error
        assert isinstance(error, DoesNotFit)
        assert "`models.memory` allows 100.0 MiB" in (error.hint or "")
        home.budget("400MiB")
        assert await home.ask("ant") == 200, "a setting that was changed is tried at once"


async def test_how_long_a_cold_model_takes_to_load_is_known_to_who_decides(
    paths: Paths, models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine(paths, monkeypatch)
    async with pool_house(paths, models) as home:
        assert await home.ask("ant") == 200
        await home.pool.unload(home.pool.seat(home.ref("ant")))
        view = home.local.view(home.served("ant"))
        assert view is not None
        assert view.state == "cold"
        assert view.load_s is not None
        assert view.load_s > 0
        seat = home.pool.seat(home.ref("ant"))
        seat.load_s = None  # as in a daemon that has just been started
        await home.until(lambda: seat.estimate_s is not None or seat.load_left_s(0.0) is not None, 10.0)
        assert (home.local.view(home.served("ant")) or view).load_s is not None
