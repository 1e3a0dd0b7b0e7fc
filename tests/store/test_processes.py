"""Killed, competing and vanished processes."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from appliance.catalog import ModelRef
from appliance.errors import ModelError
from appliance.paths import Paths
from appliance.store import Store
from appliance.store.lock import Lock
from tests.store import server as acts
from tests.store.helpers import MIB, Seen, at_url, files_in, until
from tests.store.server import Host


async def start(paths: Paths, host: Host, ref: ModelRef) -> asyncio.subprocess.Process:
    file = ref.variant.main
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.store.puller", str(paths.data.parent), f"{host.url}/tiny.gguf",
        file.sha256, str(file.size), stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip


def partial(paths: Paths) -> int:
    """Bytes of the partial file."""
    return sum(path.stat().st_size for path in files_in(paths.models))


async def test_a_second_process_follows_the_first(store: Store, paths: Paths, host: Host) -> None:
    ref, go = at_url(host.url, host.body), asyncio.Event()
    host.acts = [acts.held(2 * MIB, go)]
    child = await start(paths, host, ref)
    await until(lambda: partial(paths) > 0, "the child's transfer")
    followed = asyncio.Event()
    seen = Seen()

    def look(progress: object) -> None:
        seen(progress)  # type: ignore[arg-type]
        if seen[-1].done > 0:
            followed.set()

    pulling = asyncio.create_task(store.pull(ref, look))
    await asyncio.wait_for(followed.wait(), 10)
    assert seen[-1].message == f"the process {child.pid} is fetching it"
    assert seen.phases[-1] == "downloading"
    with pytest.raises(ModelError, match=str(child.pid)):
        store.remove(ref)
    go.set()
    stored = await pulling
    out, _ = await child.communicate()
    assert out.decode().strip() == str(stored.main)
    assert len(host.requests) == 1
    assert seen[-1].phase == "done"


async def test_a_follower_takes_over_when_the_first_is_killed(store: Store, paths: Paths, host: Host) -> None:
    ref, never = at_url(host.url, host.body), asyncio.Event()
    host.acts = [acts.held(2 * MIB, never)]
    child = await start(paths, host, ref)
    await until(lambda: partial(paths) > 0, "the child's transfer")
    seen = Seen()
    pulling = asyncio.create_task(store.pull(ref, seen))
    await until(lambda: bool(seen), "following")
    child.kill()
    await child.communicate()
    stored = await asyncio.wait_for(pulling, 20)
    never.set()
    assert stored.main.read_bytes() == host.body
    first, _, last = str(host.ranges[1]).removeprefix("bytes=").partition("-")
    assert (int(first) >= MIB, last) == (True, str(3 * MIB - 1))


async def test_two_pulls_in_one_process_share_one_transfer(store: Store, host: Host) -> None:
    ref = at_url(host.url, host.body)
    first, second = await asyncio.gather(store.pull(ref), store.pull(ref))
    assert first == second
    assert len(host.requests) == 1


def write_lock(path: Path, **changes: object) -> None:
    me = psutil.Process()
    document = {
        "pid": me.pid, "started": me.create_time(), "host": os.uname().nodename, "token": "gone",
        "alive_at": time.time(), "progress": {},
    }  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document | changes))


def ended_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


class TestStaleLocks:
    @pytest.mark.parametrize(
        "changes",
        [
            pytest.param(lambda: {"pid": ended_pid()}, id="the owner is gone"),
            pytest.param(lambda: {"pid": os.getppid(), "started": 1.0}, id="the pid belongs to another"),
            pytest.param(dict, id="our own pid, but no lock of ours"),
            pytest.param(lambda: {"host": "elsewhere", "alive_at": 1.0}, id="another computer, silent"),
        ],
    )
    async def test_is_taken_over(
        self, store: Store, paths: Paths, host: Host, changes: Callable[[], dict[str, object]]
    ) -> None:
        write_lock(paths.models / ".locks" / "tiny~F32.json", **changes())
        stored = await asyncio.wait_for(store.pull(at_url(host.url, host.body)), 10)
        assert stored.main.read_bytes() == host.body

    def test_a_broken_lock_file_is_no_lock(self, tmp_path: Path) -> None:
        path = tmp_path / "a.json"
        path.write_text("{")
        assert Lock(path).acquire() is None

    def test_a_living_owner_keeps_it(self, tmp_path: Path) -> None:
        parent = psutil.Process(os.getppid())
        path = tmp_path / "a.json"
        write_lock(path, pid=parent.pid, started=parent.create_time())
        holder = Lock(path).acquire()
        assert holder is not None
        assert holder.pid == parent.pid
        write_lock(path, host="elsewhere")
        assert Lock(path).acquire() is not None

    def test_only_the_owner_gives_it_back(self, tmp_path: Path) -> None:
        first, second = Lock(tmp_path / "a.json"), Lock(tmp_path / "a.json")
        assert first.acquire() is None
        assert second.acquire() is not None
        second.release()
        assert second.acquire() is not None
        first.release()
        assert second.acquire() is None
