"""The partial file, its log and its hash: bytes in any order, nothing believed that was not read back."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import random
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from appliance.catalog import File
from appliance.errors import DiskFull
from appliance.store import chunks, partlog, regular
from appliance.store.hasher import Hasher
from appliance.store.partfile import Overlong, PartFile, Unwritable, on_disk
from appliance.store.threads import StopFlag, Stopped
from tests.store.helpers import pin

CHUNK = 4096
BODY = random.Random(3).randbytes(20 * CHUNK + 777)
SHA256 = hashlib.sha256(BODY).hexdigest()
FILE = pin("a.gguf", BODY)


def no(_: int) -> None:
    pass


@contextlib.contextmanager
def opened(folder: Path, file: File = FILE) -> Iterator[tuple[PartFile, Hasher]]:
    part = PartFile(folder, file, chunk=CHUNK)
    hasher = Hasher(part)
    hasher.start()
    try:
        part.open(StopFlag(), no)
        yield part, hasher
    finally:
        hasher.close()
        part.close()


def fill(part: PartFile, index: int, *, body: bytes = BODY, piece: int = 1000) -> None:
    """Write what is missing of a chunk, in pieces."""
    at, stop = part.map.start(index) + part.map.lengths[index], part.map.stop(index)
    while at < stop:
        part.write(at, body[at : min(stop, at + piece)])
        at = min(stop, at + piece)


def fill_all(part: PartFile, indexes: Sequence[int] = range(21), *, body: bytes = BODY) -> None:
    for index in indexes:
        fill(part, index, body=body)


class TestTheHash:
    def test_chunks_written_by_many_threads_in_any_order_are_hashed_in_theirs(self, tmp_path: Path) -> None:
        order = random.Random(1).sample(range(21), 21)
        with opened(tmp_path) as (part, hasher):
            workers = [threading.Thread(target=fill_all, args=(part, order[n::4])) for n in range(4)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
            assert hasher.digest(StopFlag()) == SHA256
            found = chunks.digests_of(part.path, StopFlag(), no, chunk=CHUNK)
            assert part.digests() == found

    def test_a_replaced_chunk_is_hashed_again(self, tmp_path: Path) -> None:
        wrong = bytearray(BODY)
        wrong[5 * CHUNK + 9] ^= 1
        with opened(tmp_path) as (part, hasher):
            for index in range(21):
                fill(part, index, body=bytes(wrong))
            assert hasher.digest(StopFlag()) == hashlib.sha256(wrong).hexdigest()
            part.replace(5, BODY[5 * CHUNK : 6 * CHUNK])
            assert hasher.digest(StopFlag()) == SHA256

    @given(st.lists(st.tuples(st.sampled_from("rcf"), st.integers(0, 20)), max_size=12))
    @settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_whatever_is_changed_in_between_the_end_is_right(
        self, tmp_path_factory: pytest.TempPathFactory, acts: list[tuple[str, int]]
    ) -> None:
        with opened(tmp_path_factory.mktemp("part")) as (part, hasher):
            fill_all(part)
            for act, index in acts:
                if act == "r":
                    part.replace(index, os.urandom(part.map.full(index)))
                elif act == "c":
                    part.cut(index, part.map.lengths[index] // 2, StopFlag())
                else:
                    part.forget(index)
            for index in range(21):
                part.forget(index) if any(index == changed for _, changed in acts) else None
                fill(part, index)
            assert hasher.digest(StopFlag()) == SHA256

    def test_a_file_that_someone_shortens_is_an_error_and_no_hash(self, tmp_path: Path) -> None:
        with opened(tmp_path) as (part, hasher):
            for index in range(1, 21):
                fill(part, index)
            os.truncate(part.path, 3 * CHUNK)
            fill(part, 0)
            with pytest.raises(Unwritable):
                hasher.digest(StopFlag())


class TestOpeningAgain:
    def test_what_was_logged_is_here_again_and_a_hole_is_not(self, tmp_path: Path) -> None:
        with opened(tmp_path) as (part, _):
            for index in (0, 1, 7, 20):
                fill(part, index)
            part.write(3 * CHUNK, BODY[3 * CHUNK : 3 * CHUNK + 1500])
            part.flush_log(3 * CHUNK)
        with opened(tmp_path) as (part, hasher):
            assert part.arrived == 3 * CHUNK + 777 + 1500
            assert part.offset == 2 * CHUNK
            assert part.gaps()[:2] == ((2 * CHUNK, 3 * CHUNK), (3 * CHUNK + 1500, 7 * CHUNK))
            fill_all(part)
            assert hasher.digest(StopFlag()) == SHA256

    @given(st.binary(max_size=300), st.integers(0, 700))
    @settings(max_examples=60, deadline=None)
    def test_no_log_makes_wrong_bytes_believed(
        self, tmp_path_factory: pytest.TempPathFactory, junk: bytes, at: int
    ) -> None:
        folder = tmp_path_factory.mktemp("part")
        with opened(folder) as (part, _):
            for index in range(10):
                fill(part, index)
        log = folder / "a.gguf.part.log"
        head, _, lines = log.read_bytes().partition(b"\n")
        log.write_bytes(head + b"\n" + lines[:at] + junk + lines[at + len(junk) :])
        with opened(folder) as (part, _):
            for index in range(21):
                length = part.map.lengths[index]
                start = index * CHUNK
                assert part.path.read_bytes()[start : start + length] == BODY[start : start + length]

    def test_the_digest_of_a_chunk_is_of_what_came_and_not_of_the_disk(self, tmp_path: Path) -> None:
        with opened(tmp_path) as (part, _):
            fill_all(part)
            with part.path.open("r+b") as file:
                file.seek(4 * CHUNK)
                file.write(b"damage")
            assert part.differing(StopFlag(), no) == (4,)

    def test_a_cancel_while_reading_back_keeps_everything(self, tmp_path: Path) -> None:
        with opened(tmp_path) as (part, _):
            fill_all(part)
        before = (tmp_path / "a.gguf.part.log").read_bytes()
        stop = StopFlag()
        part = PartFile(tmp_path, FILE, chunk=CHUNK)
        with pytest.raises(Stopped):
            part.open(stop, lambda _: stop.set())
        part.close()
        assert (tmp_path / "a.gguf.part").read_bytes() == BODY
        assert (tmp_path / "a.gguf.part.log").read_bytes() == before

    def test_the_chunk_size_of_the_log_counts(self, tmp_path: Path) -> None:
        with opened(tmp_path) as (part, _):
            fill(part, 2)
        part = PartFile(tmp_path, FILE)
        part.open(StopFlag(), no)
        assert (part.map.chunk, part.arrived) == (CHUNK, CHUNK)
        part.close()

    def test_nothing_is_left_of_a_file_of_which_nothing_came(self, tmp_path: Path) -> None:
        with opened(tmp_path):
            pass
        assert list(tmp_path.iterdir()) == []


class TestAWholeBody:
    def test_what_is_here_already_is_left_alone_and_counts_once(self, tmp_path: Path) -> None:
        with opened(tmp_path) as (part, hasher):
            for index in (0, 1, 2, 9):
                fill(part, index)
            assert not any(part.put(at, BODY[at : at + 3000], StopFlag()) for at in range(0, len(BODY), 3000))
            assert part.map.whole
            assert hasher.digest(StopFlag()) == SHA256

    def test_what_differs_is_replaced_and_what_lies_behind_is_kept(self, tmp_path: Path) -> None:
        with opened(tmp_path) as (part, hasher):
            for index in range(21):
                fill(part, index, body=bytes(len(BODY)) if index < 5 else BODY)
            stop = StopFlag()
            assert part.put(0, BODY[:3000], stop)
            assert part.map.lengths[:2] == [3000, CHUNK]
            assert part.arrived == len(BODY) - CHUNK + 3000
            for at in range(3000, 5 * CHUNK, 1000):
                part.put(at, BODY[at : at + 1000], stop)
            assert hasher.digest(stop) == SHA256


class TestEnding:
    def test_the_final_name_comes_with_the_digests_and_without_the_log(self, tmp_path: Path) -> None:
        with opened(tmp_path) as (part, hasher):
            fill_all(part)
            hasher.digest(StopFlag())
            hasher.close()
            part.finish()
        assert sorted(path.name for path in tmp_path.iterdir()) == ["a.gguf", "a.gguf.chunks"]
        found = chunks.read(tmp_path / "a.gguf.chunks", len(BODY), SHA256)
        assert found == chunks.digests_of(tmp_path / "a.gguf", StopFlag(), no, chunk=CHUNK)

    def test_more_bytes_than_the_pin(self, tmp_path: Path) -> None:
        with opened(tmp_path) as (part, _):
            with pytest.raises(Overlong):
                part.append(BODY + b"x")
            assert part.map.whole

    def test_a_full_disk_is_said_and_what_came_before_is_kept(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write = os.pwrite

        def full(handle: int, data: memoryview, at: int) -> int:
            if at >= 4 * CHUNK:
                raise OSError(errno.ENOSPC, "No space left on device")
            return write(handle, data, at)

        monkeypatch.setattr(os, "pwrite", full)
        with opened(tmp_path) as (part, _), pytest.raises(DiskFull, match="still to come"):
            fill_all(part)
        with opened(tmp_path) as (part, _):
            assert part.arrived == 4 * CHUNK

    def test_holes_do_not_count_as_arrived(self, tmp_path: Path) -> None:
        big = File(name="a.gguf", size=1 << 30, sha256="0" * 64)
        part = PartFile(tmp_path, big)
        part.open(StopFlag(), no)
        part.write(100 * chunks.CHUNK, bytes(1 << 20))
        assert part.path.stat().st_size == (100 * chunks.CHUNK) + (1 << 20)
        assert 1 << 20 <= on_disk(part.path) <= 2 << 20
        part.close()


class TestTheLog:
    def test_lines_that_make_no_sense_are_passed_over(self, tmp_path: Path) -> None:
        path = tmp_path / "log"
        partlog.write(path, partlog.Head(100, "aa", 4096), [])
        good = "0 50 " + "a" * 16
        with path.open("a") as out:
            out.write(f"{good}\n0 101 {'b' * 16}\n1 5 {'b' * 16}\n-1 5 {'b' * 16}\n0 5 {'B' * 16}\n0 60 bbb")
        found = partlog.read(path)
        assert found is not None
        assert [str(line) for line in found[1].values()] == [good + "\n"]

    @pytest.mark.parametrize(
        "head", ["", "{}", "[1]", '{"v": 2}', '{"v": 1, "size": "x", "sha256": "", "chunk": 4096}']
    )
    def test_a_head_that_makes_no_sense_is_no_log(self, tmp_path: Path, head: str) -> None:
        path = tmp_path / "log"
        path.write_text(head + "\n0 5 " + "a" * 16 + "\n")
        assert partlog.read(path) is None

    def test_a_log_is_written_anew_before_it_is_long(self, tmp_path: Path) -> None:
        path, head = tmp_path / "log", partlog.Head(2 * 4096, "aa", 4096)
        log = partlog.PartLog(path, head)
        log.start(())
        longest = 0
        for turn in range(1000):
            log.add(partlog.Line(turn % 2, 1 + turn, f"{turn:016x}"))
            longest = max(longest, path.read_bytes().count(b"\n"))
        log.close()
        assert longest <= 1 + partlog.most_lines(2)
        found = partlog.read(path)
        assert found == (head, {n: partlog.Line(n, 999 + n, f"{998 + n:016x}") for n in (0, 1)})

    def test_a_log_that_is_too_long_for_its_file_is_none(self, tmp_path: Path) -> None:
        path, line = tmp_path / "log", f"0 5 {'a' * 16}\n"
        partlog.write(path, partlog.Head(100, "aa", 4096), [])
        with path.open("a") as out:
            out.write(line * partlog.most_lines(1))
        assert partlog.read(path) is not None
        with path.open("a") as out:
            out.write(line * 8000)
        assert partlog.read(path) is None

    def test_a_log_of_another_size_is_not_read_on(self, tmp_path: Path) -> None:
        path = tmp_path / "log"
        partlog.write(path, partlog.Head(10**15, "aa", 4096), [partlog.Line(7, 5, "a" * 16)])
        assert partlog.read(path, 100) is None
        path.write_text("[" * 200_000)
        assert partlog.read(path) is None


class TestOtherNames:
    """What a user keeps of our files, or puts in their place."""

    def test_a_snapshot_by_hard_links_never_changes(self, tmp_path: Path) -> None:
        folder, kept = tmp_path / "a", tmp_path / "snapshot"
        with opened(folder) as (part, _):
            fill_all(part, (0, 1, 7))
        kept.mkdir()
        for path in folder.iterdir():
            os.link(path, kept / path.name)
        before = {path.name: path.read_bytes() for path in kept.iterdir()}
        assert sorted(before) == ["a.gguf.part", "a.gguf.part.log"]
        assert on_disk(folder / "a.gguf.part") == 0, "the copy needs room of its own"
        with opened(folder) as (part, hasher):
            assert part.arrived == 3 * CHUNK
            part.replace(1, bytes(CHUNK))
            part.replace(1, BODY[CHUNK : 2 * CHUNK])
            fill_all(part)
            assert hasher.digest(StopFlag()) == SHA256
            hasher.close()
            part.finish()
        assert {path.name: path.read_bytes() for path in kept.iterdir()} == before
        assert sorted(path.name for path in folder.iterdir()) == ["a.gguf", "a.gguf.chunks"]

    def test_a_copy_keeps_holes_and_what_a_kill_left_goes(self, tmp_path: Path) -> None:
        big = File(name="a.gguf", size=1 << 30, sha256="0" * 64)
        part = PartFile(tmp_path, big)
        part.open(StopFlag(), no)
        part.write(100 * chunks.CHUNK, os.urandom(1 << 20))
        part.close()
        left = tmp_path / ".a.gguf.part.0123abcd"
        left.write_bytes(b"half")
        os.link(part.path, tmp_path / "other")
        part = PartFile(tmp_path, big)
        part.open(StopFlag(), no)
        part.close()
        assert not left.exists()
        assert on_disk(part.path) <= 2 << 20
        assert part.path.read_bytes() == (tmp_path / "other").read_bytes()
        assert not part.path.samefile(tmp_path / "other")

    @pytest.mark.parametrize("name", ["a.gguf.part", "a.gguf.part.log"])
    @pytest.mark.parametrize("kind", ["a symbolic link", "a pipe", "a folder"])
    def test_what_is_no_regular_file_is_neither_read_nor_written(
        self, tmp_path: Path, name: str, kind: str
    ) -> None:
        mine, folder = tmp_path / "mine", tmp_path / "a"
        mine.write_bytes(b"my only copy")
        with opened(folder) as (part, _):
            fill_all(part, (0, 1))
        path = folder / name
        path.unlink()
        if kind == "a pipe":
            os.mkfifo(path)
        else:
            path.mkdir() if kind == "a folder" else path.symlink_to(mine)
        with pytest.raises(Unwritable, match=f"it is {kind}, not a regular file") as caught, opened(folder):
            pass
        assert f"Move {path} away" in (caught.value.hint or "")
        assert mine.read_bytes() == b"my only copy"
        assert regular.kind_of(path) == kind, "it stays"
