"""Twenty SIGKILLs at random moments, and one verified file at the end that cost little more than its size."""

from __future__ import annotations

import asyncio
import random
import sys

from appliance.paths import Paths
from appliance.store import Store
from tests.store import server as acts
from tests.store.helpers import MIB, at_url, files_in, gguf, until
from tests.store.server import Host

KILLS = 20
SIZE = 40 * MIB
SEED = 20


async def pull(paths: Paths, host: Host) -> asyncio.subprocess.Process:
    """A process that pulls over four connections."""
    file = at_url(host.url, host.body).variant.main
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.store.puller", str(paths.data.parent), f"{host.url}/tiny.gguf",
        file.sha256, str(file.size), str(MIB), stdout=asyncio.subprocess.DEVNULL,
    )  # fmt: skip


async def killed(paths: Paths, host: Host, after_bytes: int, after_s: float) -> None:
    """Let it fetch so many bytes, and a moment more, then kill it."""
    goal = host.sent + after_bytes
    child = await pull(paths, host)
    await until(lambda: host.sent >= goal or child.returncode is not None, "progress")
    await asyncio.sleep(after_s)
    assert child.returncode is None, "it ended before it was killed"
    child.kill()
    await child.wait()


async def test_twenty_kills_end_in_one_verified_file(store: Store, paths: Paths, host: Host) -> None:
    host.body = gguf(SIZE)
    host.usual = acts.throttled(0.02)
    chance, most = random.Random(SEED), 0
    for _ in range(KILLS):
        await killed(paths, host, chance.randrange(0, 3 * MIB), chance.uniform(0, 0.05))
        most = max(most, host.most)
    assert files_in(paths.models, (".gguf",)) == []
    host.usual = None
    child = await pull(paths, host)
    assert await child.wait() == 0
    stored = store.check(at_url(host.url, host.body))
    assert stored.main.read_bytes() == host.body
    assert files_in(paths.models, (".part", ".log", ".gguf")) == [stored.main]
    assert most == 4
    assert host.sent <= 1.3 * SIZE
