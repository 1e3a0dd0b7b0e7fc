"""Downloads pause, resume and end as they say, two at a time, and the next daemon goes on with them."""

from __future__ import annotations

import asyncio
import json

import pytest

from appliance.daemon import downloads as downloads_room
from appliance.daemon import queue_file
from appliance.daemon.following import fetch
from appliance.errors import ApplianceError, DownloadError, UnknownModel
from appliance.paths import Paths
from tests.daemon.shelf import SIZE, Shelf, catalog
from tests.store.helpers import MIB
from tests.store.server import Host, status, throttled

UNLOGGED = 5 * MIB
"""At most 1 MiB of each of four connections is fetched again after a pause, and a piece on its way."""


def slowly(host: Host, pause_s: float = 0.02) -> None:
    """All requests from now on are slow, until `quickly`."""
    host.acts = [throttled(pause_s)] * 200


def quickly(host: Host) -> None:
    host.acts = []


async def test_a_pause_stops_the_bytes_and_a_resume_goes_on_from_there(shelf: Shelf, host: Host) -> None:
    slowly(host)
    started = await shelf.downloads.start("a:F32")
    assert started.how == "new"
    await shelf.until(lambda: shelf.row(started.id).progress.done > 4 * MIB)
    paused = await shelf.downloads.pause(started.id)
    assert (paused.phase, paused.state, paused.finished) == ("paused", "paused", False)
    assert paused.progress.rate is None
    assert "kept" in (paused.message or "")
    at = host.sent
    await asyncio.sleep(0.5)
    assert host.sent - at <= MIB, "only what lay in the buffers of the connections"
    assert shelf.downloads.running() == frozenset()
    quickly(host)
    before = host.sent
    resumed = await shelf.downloads.resume(started.id)
    assert resumed.id == started.id
    row = await shelf.ended(started.id)
    assert (row.state, row.error) == ("done", None)
    assert host.sent - before <= SIZE - paused.progress.done + UNLOGGED
    assert shelf.library.store.find("a:F32") is not None


async def test_a_cancel_keeps_the_partial_and_a_new_start_uses_it(shelf: Shelf, host: Host) -> None:
    slowly(host)
    started = await shelf.downloads.start("a:F32")
    await shelf.until(lambda: shelf.row(started.id).progress.done > 4 * MIB)
    await shelf.downloads.cancel(started.id)
    row = shelf.row(started.id)
    assert (row.state, row.finished, row.error) == ("cancelled", True, None)
    assert [left.kind for left in shelf.library.store.leftovers()] == ["partial"]
    quickly(host)
    before = host.sent
    again = await shelf.downloads.start("a:F32")
    assert again == downloads_room.Started(started.id, "new")
    assert (await shelf.ended(again.id)).state == "done"
    assert host.sent - before <= SIZE - row.progress.done + UNLOGGED
    await shelf.downloads.cancel(again.id)
    assert shelf.downloads.snapshot == (), "a finished row goes from the list"
    with pytest.raises(UnknownModel):
        await shelf.downloads.cancel(again.id)


async def test_two_run_and_the_others_say_their_place(shelf: Shelf, host: Host) -> None:
    slowly(host)
    keys = [(await shelf.downloads.start(f"{name}:F32")).id for name in "abcd"]
    await shelf.until(lambda: all(shelf.row(key).progress.phase == "downloading" for key in keys[:2]))
    assert [shelf.row(key).phase for key in keys[2:]] == ["waiting", "waiting"]
    assert [shelf.row(key).place for key in keys] == [None, None, 1, 2]
    assert shelf.row(keys[3]).message == "place 2 in the queue"
    await shelf.downloads.pause(keys[2])
    assert shelf.row(keys[3]).place == 1
    quickly(host)
    await shelf.downloads.cancel(keys[0])
    await shelf.until(lambda: shelf.row(keys[3]).state == "running")
    assert shelf.row(keys[2]).state == "paused", "its turn comes when it is resumed"
    await shelf.downloads.resume(keys[2])
    for key in keys[1:]:
        assert (await shelf.ended(key)).state == "done"


async def test_asking_again_joins_what_is_on_its_way(shelf: Shelf, host: Host) -> None:
    slowly(host)
    first = await shelf.downloads.start("a:F32")
    assert await shelf.downloads.start("a:F32") == downloads_room.Started(first.id, "joined")
    await shelf.downloads.pause(first.id)
    assert await shelf.downloads.start("a:F32") == downloads_room.Started(first.id, "resumed")
    assert len(shelf.downloads.snapshot) == 1


async def test_a_failed_one_says_why_and_can_be_tried_again(shelf: Shelf, host: Host) -> None:
    host.acts = [status(404)] * 20
    started = await shelf.downloads.start("a:F32")
    row = await shelf.ended(started.id)
    assert row.phase == "failed"
    assert isinstance(row.error, DownloadError)
    document = row.to_json()
    assert document["error"]["hint"]
    assert document["message"] == row.error.message
    quickly(host)
    await shelf.downloads.resume(started.id)
    row = await shelf.ended(started.id)
    assert (row.state, row.error) == ("done", None)


async def test_resumed_while_it_is_being_stopped_it_goes_on(shelf: Shelf, host: Host) -> None:
    slowly(host)
    started = await shelf.downloads.start("a:F32")
    await shelf.until(lambda: shelf.row(started.id).progress.done > 2 * MIB)
    quickly(host)
    await asyncio.gather(shelf.downloads.pause(started.id), shelf.downloads.resume(started.id))
    assert (await shelf.ended(started.id)).state == "done"


async def test_the_next_daemon_goes_on_and_what_is_paused_stays_paused(
    shelf: Shelf, host: Host, paths: Paths
) -> None:
    slowly(host)
    keys = [(await shelf.downloads.start(f"{name}:F32", limit=50_000_000)).id for name in "abcd"]
    await shelf.until(lambda: shelf.row(keys[0]).progress.done > 2 * MIB)
    paused = await shelf.downloads.pause(keys[1])
    await shelf.downloads.close()
    at = host.sent
    await asyncio.sleep(0.3)
    assert host.sent - at <= MIB, "a stopped daemon fetches nothing"
    quickly(host)
    second = await Shelf.open(paths, begin=False)
    assert [(row.id, row.ref, row.state) for row in second.downloads.snapshot] == [
        ("1", "a:F32", "waiting"), ("2", "b:F32", "paused"),
        ("3", "c:F32", "waiting"), ("4", "d:F32", "waiting"),
    ]  # fmt: skip
    assert second.row(keys[1]).progress.done == paused.progress.done
    assert second.row(keys[0]).limit == 50_000_000
    second.downloads.begin()
    for key in (keys[0], keys[2], keys[3]):
        assert (await second.ended(key)).state == "done"
    assert second.row(keys[1]).state == "paused"
    assert (await second.downloads.start("b:F32")).how == "resumed"
    assert (await second.ended(keys[1])).state == "done"
    await second.downloads.close()
    third = await Shelf.open(paths)
    assert third.downloads.snapshot == (), "what is done is not done again"
    await third.downloads.close()


async def test_an_id_is_never_given_twice(shelf: Shelf, host: Host, paths: Paths) -> None:
    host.acts = [status(404)] * 20
    first = await shelf.downloads.start("a:F32")
    await shelf.ended(first.id)
    await shelf.downloads.cancel(first.id)
    await shelf.downloads.close()
    second = await Shelf.open(paths)
    assert int((await second.downloads.start("b:F32")).id) > int(first.id)
    await second.downloads.close()


async def test_a_failure_is_still_told_by_the_next_daemon(shelf: Shelf, host: Host, paths: Paths) -> None:
    host.acts = [status(404)] * 20
    row = await shelf.ended((await shelf.downloads.start("a:F32")).id)
    await shelf.downloads.close()
    assert row.error is not None
    second = await Shelf.open(paths)
    (again,) = second.downloads.snapshot
    assert (again.id, again.state, again.message) == (row.id, "failed", row.error.message)
    await second.downloads.resume(again.id)
    quickly(host)
    await second.downloads.close()


GOOD = {"id": "1", "ref": "a:F32", "state": "paused", "limit": None, "repair": False, "file": "", "done": 5,
        "total": 9, "resumable": True, "error": None}  # fmt: skip
BROKEN = [
    "",
    "{",
    "[]",
    "null",
    '{"v": 2, "next": 1, "downloads": []}',
    '{"v": 1, "next": 1}',
    '{"v": 1, "next": 1, "downloads": [7]}',
    json.dumps({"v": 1, "next": 1, "downloads": [GOOD | {"state": "flying"}]}),
    json.dumps({"v": 1, "next": 1, "downloads": [GOOD | {"id": "x"}]}),
    json.dumps({"v": 1, "next": 1, "downloads": [GOOD | {"done": None}]}),
    json.dumps({"v": 1, "next": 1, "downloads": [GOOD, GOOD]}),
    "[" * 100_000,
    "\x00\x01",
]


@pytest.mark.parametrize("text", BROKEN, ids=range(len(BROKEN)))
async def test_a_broken_queue_is_set_aside_and_told(paths: Paths, text: str) -> None:
    file = paths.state / queue_file.NAME
    file.write_text(text, encoding="utf-8")
    shelf = await Shelf.open(paths)
    assert shelf.downloads.snapshot == ()
    assert shelf.downloads.problem is not None
    assert str(file) + ".broken" in shelf.downloads.problem
    assert file.with_name(file.name + ".broken").read_text(encoding="utf-8") == text
    await shelf.downloads.close()


def test_a_good_queue_is_read_as_written(paths: Paths) -> None:
    file = paths.state / queue_file.NAME
    (paths.state / f".{queue_file.NAME}.left").write_text("half", encoding="utf-8")
    file.write_text(json.dumps({"v": 1, "next": 7, "downloads": [GOOD]}), encoding="utf-8")
    found = queue_file.read(file)
    assert (found.next_id, found.problem) == (7, None)
    assert queue_file.document(found.downloads, found.next_id)["downloads"] == [GOOD]
    assert not list(paths.state.glob(".*"))


async def test_the_queue_holds_no_address(shelf: Shelf, host: Host, paths: Paths) -> None:
    slowly(host)
    await shelf.downloads.start("a:F32")
    text = (paths.state / queue_file.NAME).read_text(encoding="utf-8")
    assert "http" not in text
    assert str(host.url) not in text


async def test_progress_wakes_followers_at_a_bounded_pace(shelf: Shelf, host: Host) -> None:
    slowly(host, 0.01)
    started = await shelf.downloads.start("a:F32")
    await shelf.until(lambda: shelf.row(started.id).progress.phase == "downloading")
    shelf.told.clear()
    moves = 0
    deadline = asyncio.get_running_loop().time() + 1.5
    while asyncio.get_running_loop().time() < deadline and not shelf.row(started.id).finished:
        shown = shelf.row(started.id)
        await shelf.downloads.moved(0.2)
        moves += shelf.row(started.id) is not shown
    assert moves >= 6
    assert 1 <= len(shelf.told) <= 5


async def test_what_up_waits_for_does_not_wait_for_its_turn(shelf: Shelf, host: Host) -> None:
    slowly(host)
    for name in "abc":
        await shelf.downloads.start(f"{name}:F32")
    seen: list[str] = []
    quickly(host)
    ref = shelf.library.resolve("d")
    await fetch(shelf.downloads, ref, lambda row: seen.append(row.phase))
    assert seen[-1] == "done"
    assert "downloading" in seen


async def test_a_fetch_that_is_interrupted_leaves_the_queue_but_not_what_others_began(
    shelf: Shelf, host: Host
) -> None:
    slowly(host)
    ref = shelf.library.resolve("a")
    alone = asyncio.ensure_future(fetch(shelf.downloads, ref, lambda _: None))
    await shelf.until(lambda: shelf.downloads.snapshot and shelf.row("1").progress.done > MIB)
    alone.cancel()
    await asyncio.gather(alone, return_exceptions=True)
    assert shelf.row("1").state == "cancelled"
    await shelf.downloads.resume("1")
    joined = asyncio.ensure_future(fetch(shelf.downloads, ref, lambda _: None))
    await shelf.until(lambda: shelf.row("1").progress.phase == "downloading")
    joined.cancel()
    await asyncio.gather(joined, return_exceptions=True)
    assert shelf.row("1").state == "running"
    await shelf.downloads.cancel("1")


async def test_a_fetch_raises_what_it_ended_with(shelf: Shelf, host: Host) -> None:
    ref = shelf.library.resolve("a")
    host.acts = [status(404)] * 20
    with pytest.raises(DownloadError):
        await fetch(shelf.downloads, ref, lambda _: None)
    slowly(host)
    running = asyncio.ensure_future(fetch(shelf.downloads, ref, lambda _: None))
    await shelf.until(lambda: shelf.row("1").progress.phase == "downloading")
    await shelf.downloads.cancel("1")
    with pytest.raises(DownloadError, match="was cancelled"):
        await running


async def test_the_queue_is_bounded(shelf: Shelf, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads_room, "MAX_ACTIVE", 2)
    slowly(host)
    await shelf.downloads.start("a:F32")
    await shelf.downloads.start("b:F32")
    with pytest.raises(ApplianceError, match="waiting"):
        await shelf.downloads.start("c:F32")


async def test_finished_rows_are_bounded(shelf: Shelf, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads_room, "KEPT_FINISHED", 2)
    host.acts = [status(404)] * 40
    for name in "abcd":
        await shelf.ended((await shelf.downloads.start(f"{name}:F32")).id)
    assert [row.ref for row in shelf.downloads.snapshot] == ["c:F32", "d:F32"]


async def test_a_removed_model_leaves_the_list_and_its_transfer_ends(shelf: Shelf, host: Host) -> None:
    slowly(host)
    await shelf.downloads.start("a:F32")
    await shelf.until(lambda: shelf.row("1").progress.done > MIB)
    await shelf.downloads.forget("a:F32")
    assert shelf.downloads.snapshot == ()
    assert shelf.library.store.remove("a:F32") >= MIB, "its lock is free"


async def test_a_name_that_left_the_catalog_fails_alone(shelf: Shelf, host: Host, paths: Paths) -> None:
    slowly(host)
    for name in "ab":
        await shelf.downloads.start(f"{name}:F32")
    await shelf.downloads.close()
    quickly(host)
    paths.user_catalog.write_text(catalog(host, "b"), encoding="utf-8")
    second = await Shelf.open(paths)
    assert (await second.ended("1")).state == "failed"
    assert isinstance(second.row("1").error, UnknownModel)
    assert (await second.ended("2")).state == "done"
    await second.downloads.close()


async def test_a_slow_disk_is_told_and_does_not_hang(
    shelf: Shelf, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads_room, "STOP_S", 0.05)
    gone = asyncio.Event()

    async def stubborn(*_: object) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await gone.wait()

    shelf.downloads._work = stubborn
    started = await shelf.downloads.start("a:F32")
    await asyncio.sleep(0)
    with pytest.raises(ApplianceError, match="slow to stop"):
        await shelf.downloads.pause(started.id)
    gone.set()
    await shelf.until(lambda: shelf.row(started.id).state == "paused")


async def test_the_last_to_end_is_the_last_to_leave_the_list(
    shelf: Shelf, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long transfer that outlived many later ones must still be there for whoever waits for its end."""
    monkeypatch.setattr(downloads_room, "KEPT_FINISHED", 1)
    slowly(host)
    first = await shelf.downloads.start("a:F32")
    await shelf.until(lambda: shelf.row(first.id).state == "running")
    second = await shelf.downloads.start("b:F32")
    await shelf.downloads.cancel(second.id)
    quickly(host)
    assert (await shelf.ended(first.id)).state == "done"
    assert [row.id for row in shelf.downloads.snapshot] == [first.id]
