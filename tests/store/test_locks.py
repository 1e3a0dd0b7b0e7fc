"""Whose lock it is: clocks that differ, processes without a start, odd files in its place."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from appliance import processes
from appliance.errors import ApplianceError, DiskFull
from appliance.paths import Paths
from appliance.store import Store, layout
from appliance.store import lock as locks
from appliance.store.layout import Layout
from appliance.store.lock import Lock
from tests.store.helpers import Seen, at_url
from tests.store.server import Host

BASE: dict[str, Any] = {
    "pid": 1,
    "started": None,
    "ticks": None,
    "host": platform.node(),
    "token": "ab",
    "alive_at": 0.0,
    "progress": {},
}


def written(path: Path, **further: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(BASE | further))
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / ".locks" / "tiny~F32.json"


@pytest.mark.parametrize(
    ("ahead", "alive"),
    [(-170, True), (-200, False), (100, True), (200, False), (1e9, False), (float("inf"), False),
     (float("nan"), False)],
)  # fmt: skip
def test_a_clock_that_is_ahead_keeps_no_lock_for_ever(path: Path, ahead: float, alive: bool) -> None:
    written(path, host="elsewhere", alive_at=time.time() + ahead)
    owner = Lock(path).owner()
    assert (owner is not None) == alive
    if owner is not None:
        assert owner.who == "the process 1 on elsewhere"


def test_a_process_whose_start_is_not_known_has_to_be_heard_of(path: Path) -> None:
    """Any process may have the number of one that has ended."""
    written(path, pid=os.getppid(), alive_at=time.time())
    assert Lock(path).owner() is not None
    written(path, pid=os.getppid(), alive_at=time.time() - 200)
    assert Lock(path).owner() is None
    start = processes.start_time(os.getppid())
    written(path, pid=os.getppid(), started=start, alive_at=time.time() - 200)
    assert Lock(path).owner() is not None, "a known one keeps its lock however long it is silent"


@pytest.mark.parametrize("text", ["", "xx", "[" * 100_000, "[]", '{"pid": 1e400}'])
def test_a_lock_file_that_says_nothing_is_nobodys(path: Path, text: str) -> None:
    path.parent.mkdir()
    path.write_text(text)
    assert locks.stale(path)
    assert Lock(path).acquire() is None


@pytest.mark.parametrize("pid", [0, -1, 10**30, "x", None])
def test_a_number_that_no_process_has(path: Path, pid: object) -> None:
    written(path, pid=pid, alive_at=time.time())
    assert Lock(path).owner() is None


@pytest.mark.parametrize("name", ["tiny~F32.json", ".guard"])
def test_a_folder_in_its_place_is_named_with_the_way_out(path: Path, name: str) -> None:
    (path.parent / name).mkdir(parents=True)
    with pytest.raises(ApplianceError) as caught:
        locks.acquire(Lock(path))
    assert str(path.parent / name) in (caught.value.hint or "")
    assert "away" in (caught.value.hint or "")


async def test_the_follower_says_who_has_it_and_goes_on_when_that_falls_silent(
    store: Store, host: Host, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(Layout(paths.models).lock("tiny:F32"), host="else\nwhere", started=1.0, alive_at=time.time())
    monkeypatch.setattr(locks, "_SILENCE_S", 0.3)
    seen = Seen()
    await store.pull(at_url(host.url, host.body), seen)
    assert seen[0].phase == "waiting"
    assert seen[0].message == "the process 1 on else where is fetching it"
    assert seen.phases[-1] == "done"


class TestOnAFullDisk:
    def test_removing_goes_on_without_a_lock_file_and_nobody_gets_past_it(
        self, path: Path, full: Callable[[], None]
    ) -> None:
        fcntl = pytest.importorskip("fcntl")
        full()
        with Lock(path).clearing() as holder:
            assert holder is None
            assert not path.exists()
            with path.with_name(".guard").open("r+") as guard, pytest.raises(BlockingIOError):
                fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with path.with_name(".guard").open("r+") as guard:
            fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def test_a_living_owner_is_respected(self, path: Path, full: Callable[[], None]) -> None:
        other = Lock(path)
        assert other.acquire() is None
        full()
        with Lock(path).clearing() as holder:
            assert holder is not None
            assert holder.pid == os.getpid()
        other.release()

    def test_a_transfer_is_refused_in_words(self, path: Path, full: Callable[[], None]) -> None:
        full()
        with pytest.raises(DiskFull) as caught:
            locks.acquire(Lock(path))
        assert caught.value.cause == "The disk is full."
        assert "Free some space" in (caught.value.hint or "")


def test_with_room_the_file_is_there_and_the_guard_is_free(path: Path) -> None:
    with Lock(path).clearing() as holder:
        assert holder is None
        assert path.exists()
        assert Lock(path).acquire() is not None
    assert not path.exists()


def test_giving_back_a_lock_that_was_never_taken_touches_nothing(path: Path) -> None:
    Lock(path).release()
    assert not path.parent.exists()


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """No document can be written from now on, as on a full disk."""

    def now() -> None:
        def refuse(*_: object, **__: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(layout, "write_json", refuse)

    return now
