"""Whatever happens to an engine and in whatever order: in the end nothing of it is left.

The seed is printed; `RANDOM_STEPS_SEED=N` runs the same steps again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from pathlib import Path

import pytest

from appliance.engines import Engine, Limits
from appliance.errors import ApplianceError, EngineUnavailable
from appliance.paths import Paths
from tests.engines.fake_engine import Script, install, left
from tests.engines.launches import Watch, launch
from tests.engines.requests import stream

MODEL = Path("/nonexistent.gguf")
LIMITS = Limits(
    stall_s=0.6, load_s=10.0, probe_s=1.0, stop_s=0.3, restarts=2, window_s=2.0, backoff_s=(0.01, 0.05),
    quiet_s=0.1, sign_s=0.2, hang_s=0.8, doubt_s=0.0,
)  # fmt: skip
FAULTS = (
    Script(die_at_start=1),
    Script(die_loading=-signal.SIGKILL, load_s=0.05),
    Script(hang_loading=True),
    Script(die_after_tokens=1),
    Script(hang_after_tokens=1),
    Script(stall_after_tokens=1),
    Script(broken_after=1),
    Script(garbage=True),
    Script(garbage_probe=True),
    Script(leak_child=True),
    Script(leak_session=True),
    Script(ignore_sigterm=True),
    Script(flood_lines=5_000),
    Script(token_s=0.05),
)
STEPS = {
    "start": 5, "wait": 7, "request": 5, "leave": 2, "kill": 2, "probe": 1, "suspect": 1,
    "stop": 1, "both": 1, "cancel": 1,
}  # fmt: skip
"""How often each."""


class Steps:
    """One engine, and what can be done to it."""

    def __init__(self, engine: Engine, chance: random.Random) -> None:
        self._engine, self._chance = engine, chance
        self._under_way: set[asyncio.Task[object]] = set()

    async def do(self, step: str) -> None:
        """Begin or do one step. None of them may take longer than its limit."""
        async with asyncio.timeout(15):
            await getattr(self, f"_{step}")()

    async def end(self) -> None:
        """Stop, and wait for all that was begun."""
        async with asyncio.timeout(30):
            await self._engine.stop()
            await asyncio.gather(*self._under_way)

    def _begin(self, work: asyncio.Task[object]) -> None:
        self._under_way.add(work)
        work.add_done_callback(self._under_way.discard)

    async def _start(self) -> None:
        await self._engine.start()

    async def _stop(self) -> None:
        await self._engine.stop()

    async def _kill(self) -> None:
        if (pid := self._engine.snapshot.pid) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, self._chance.choice((signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM)))

    async def _request(self, leave_after_s: float | None = None) -> None:
        async def ask() -> None:
            with contextlib.suppress(EngineUnavailable):
                await stream(self._engine, leave_after_s=leave_after_s)

        self._begin(asyncio.create_task(ask()))

    async def _leave(self) -> None:
        await self._request(self._chance.uniform(0.0, 0.3))

    async def _probe(self) -> None:
        self._begin(asyncio.create_task(self._engine.probe()))

    async def _suspect(self) -> None:
        with contextlib.suppress(EngineUnavailable), self._engine.busy() as lease:
            lease.suspect()

    async def _both(self) -> None:
        """Start and stop at once, in either order."""
        works = [self._engine.start, self._engine.stop]
        self._chance.shuffle(works)
        await asyncio.gather(*(work() for work in works))

    async def _cancel(self) -> None:
        """Somebody who waits for the stop goes away."""
        stopping = asyncio.create_task(self._engine.stop())
        await asyncio.sleep(self._chance.uniform(0.0, 0.05))
        stopping.cancel()
        await asyncio.gather(stopping, return_exceptions=True)

    async def _wait(self) -> None:
        """Until it is ready or has given up, for a while."""
        with contextlib.suppress(ApplianceError, TimeoutError):
            async with asyncio.timeout(self._chance.uniform(0.0, 1.0)):
                await self._engine.wait_ready()


async def run(paths: Paths, seed: int, count: int) -> None:
    print(f"RANDOM_STEPS_SEED={seed}")
    chance = random.Random(seed)
    folder = paths.data / "fake"
    scripts = [chance.choice((*FAULTS, *[Script()] * len(FAULTS))) for _ in range(count)]
    watch = Watch()
    engine = Engine(
        install(folder, *scripts), launch(MODEL), paths=paths, limits=LIMITS, on_change=watch.on_change
    )
    steps = Steps(engine, chance)
    for _ in range(count):
        await steps.do(*chance.choices(list(STEPS), list(STEPS.values())))
    await steps.end()

    snapshot = engine.snapshot
    assert (snapshot.state, snapshot.pid, snapshot.slots_busy) == ("absent", None, 0)
    assert await asyncio.to_thread(left, folder) == []
    assert list(paths.runtime.iterdir()) == []
    notes = paths.state / "engines"
    assert not notes.exists() or list(notes.iterdir()) == []
    assert watch.states().count("ready") >= 5  # it was no walk through nothing

    install(folder, Script())  # and it can still be started
    (folder / "starts").unlink(missing_ok=True)
    await engine.start()
    async with asyncio.timeout(20):
        await engine.wait_ready()
    assert await stream(engine)
    await engine.stop()
    assert await asyncio.to_thread(left, folder) == []


def seed_of_the_day() -> int:
    return int(os.environ.get("RANDOM_STEPS_SEED") or random.SystemRandom().randrange(1 << 32))


async def test_two_hundred_random_steps_leave_nothing_behind(paths: Paths) -> None:
    await run(paths, seed_of_the_day(), 200)


@pytest.mark.slow
@pytest.mark.timeout(1_500)
@pytest.mark.parametrize("number", range(8))
async def test_many_random_steps_leave_nothing_behind(paths: Paths, number: int) -> None:
    await run(paths, seed_of_the_day() + number, 400)
