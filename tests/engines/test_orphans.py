"""`kill -9` of a daemon with two engines: nothing of it computes any more, and the next one cleans up."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil

from appliance.engines import end_orphans
from appliance.engines.environment import MARKER
from appliance.paths import Paths
from tests.engines.fake_engine import Script, install, left
from tests.engines.launches import without_devices

ROOT = Path(__file__).parents[2]
DRIVER = """
import asyncio, json, sys
from pathlib import Path
from appliance.engines import Build, Engine
from tests.engines.launches import build, launch, paths_in

async def main():
    paths = paths_in(Path(sys.argv[1]))
    engines = []
    for kind, model in zip(sys.argv[2::2], sys.argv[3::2]):
        made = Build("llama-server", kind, "10434", "fake") if "/" in kind else build(kind)
        engines.append(Engine(made, launch(Path(model)), paths=paths))
    await asyncio.gather(*(engine.start() for engine in engines))
    await asyncio.gather(*(engine.wait_ready() for engine in engines))
    print(json.dumps([engine.snapshot.pid for engine in engines]), flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


@asynccontextmanager
async def daemon(
    paths: Paths, *engines: str
) -> AsyncIterator[tuple[asyncio.subprocess.Process, list[psutil.Process]]]:
    """A process with these engines (kind and model, in turn), ready; and all their processes."""
    driver = await asyncio.create_subprocess_exec(
        sys.executable, "-c", DRIVER, str(paths.config.parent), *engines, stdout=subprocess.PIPE, cwd=ROOT
    )
    try:
        assert driver.stdout is not None
        await driver.stdout.readline()
        found = psutil.Process(driver.pid).children(recursive=True)
        yield driver, [process for process in found if MARKER in process.environ()]
    finally:
        with contextlib.suppress(ProcessLookupError):
            driver.kill()
        await driver.wait()


def runs(process: psutil.Process) -> bool:
    """False once it has ended, whether or not init has looked at it yet."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def left_after(limit_s: float, processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those that still run after so long; earlier when none does."""
    began = time.monotonic()
    while any(map(runs, processes)) and time.monotonic() - began < limit_s:
        time.sleep(0.02)
    return [process for process in processes if runs(process)]


async def test_two_real_engines_are_gone_two_seconds_after_their_daemon(
    paths: Paths, smollm2_path: Path
) -> None:
    model = str(smollm2_path)
    with without_devices():
        async with daemon(paths, "llama-server", model, "xllamacpp", model) as (driver, engines):
            assert len(engines) == 2
            driver.kill()
            assert await asyncio.to_thread(left_after, 2.0, engines) == []
    assert len(list(paths.runtime.iterdir())) == 2  # the sockets of the dead
    assert await asyncio.to_thread(end_orphans, paths) == ()
    assert list(paths.runtime.iterdir()) == []
    assert list((paths.state / "engines").iterdir()) == []


async def test_the_next_daemon_ends_what_a_dead_engine_had_leaked(paths: Paths) -> None:
    folder = paths.data / "fake"
    program = install(folder, Script(leak_session=True, leak_child=True)).path
    assert program is not None
    async with daemon(paths, program, "/nonexistent.gguf") as (_, processes):
        assert len(processes) == 3
    await asyncio.to_thread(end_orphans, paths)
    assert await asyncio.to_thread(left, folder) == []
