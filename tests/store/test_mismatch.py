"""The hash, what is done when it differs, partial files of any kind, and a cancel."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time

import pytest

from appliance.errors import DownloadError, NotVerified
from appliance.paths import Paths
from appliance.store import Store
from tests.store import server as acts
from tests.store.helpers import MIB, Seen, at_url, files_in, gguf
from tests.store.server import Host

HALF = 1_500_000
SIZE = 3 * MIB


def rest(start: int = 0) -> str:
    """The range from `start` to the end of the small model."""
    return f"bytes={start}-{SIZE - 1}"


class TestTheHash:
    async def test_a_bit_that_always_comes_flipped_is_quarantined_with_a_note(
        self, store: Store, paths: Paths, host: Host
    ) -> None:
        host.acts = [acts.corrupt] * 2
        ref = at_url(host.url + "/secret", host.body)
        with pytest.raises(NotVerified) as caught:
            await store.pull(ref)
        assert caught.value.exit_code == 4
        assert store.list() == ()
        (left,) = store.leftovers()
        assert (left.kind, left.size) == ("quarantined", SIZE)
        note = json.loads(left.path.with_name(left.path.name + ".json").read_text())
        assert note["expected"]["sha256"] == ref.variant.main.sha256
        assert note["actual"]["sha256"] == hashlib.sha256(left.path.read_bytes()).hexdigest()
        assert note["source"] == "127.0.0.1"
        assert abs(note["time"] - time.time()) < 60
        assert files_in(paths.models, (".log", ".chunks")) == []
        assert host.ranges == [rest()] * 2

    async def test_a_flipped_bit_after_a_resume_is_repaired(self, store: Store, host: Host) -> None:
        host.acts = [acts.cut(HALF), acts.status(404)]
        ref = at_url(host.url, host.body)
        with pytest.raises(DownloadError):
            await store.pull(ref)
        host.acts = [acts.corrupt]
        stored = await store.pull(ref)
        assert stored.main.read_bytes() == host.body
        assert host.ranges[-2:] == [rest(HALF), rest()]
        assert store.leftovers() == ()

    async def test_a_partial_that_changed_on_disk_does_not_end_in_a_model(
        self, store: Store, paths: Paths, host: Host
    ) -> None:
        host.acts = [acts.cut(HALF), acts.status(404)]
        ref = at_url(host.url, host.body)
        with pytest.raises(DownloadError):
            await store.pull(ref)
        (part,) = files_in(paths.models)
        damaged = bytearray(part.read_bytes())
        damaged[1_000_000] ^= 4
        part.write_bytes(damaged)
        assert (await store.pull(ref)).main.read_bytes() == host.body

    async def test_of_a_body_with_more_bytes_only_those_that_were_asked_for_are_taken(
        self, store: Store, host: Host
    ) -> None:
        host.acts = [acts.longer]
        stored = await store.pull(at_url(host.url, host.body))
        assert stored.main.read_bytes() == host.body
        assert len(host.requests) == 1

    async def test_a_whole_partial_of_an_earlier_version_is_hashed_without_a_request(
        self, store: Store, paths: Paths, host: Host
    ) -> None:
        ref = at_url(host.url, host.body)
        host.acts = [acts.cut(HALF), acts.status(404)]
        with pytest.raises(DownloadError):
            await store.pull(ref)
        (part,) = files_in(paths.models)
        part.write_bytes(host.body)
        part.with_name(part.name + ".log").unlink()
        assert (await store.pull(ref)).main.read_bytes() == host.body
        assert len(host.requests) == 2

    async def test_bytes_damaged_on_disk_whose_log_is_lost_are_not_said_to_have_come_wrong(
        self, store: Store, paths: Paths, host: Host, caplog: pytest.LogCaptureFixture
    ) -> None:
        ref, seen = at_url(host.url, host.body), Seen()
        host.acts = [acts.cut(HALF), acts.status(404)]
        with pytest.raises(DownloadError):
            await store.pull(ref)
        (part,) = files_in(paths.models)
        part.write_bytes(host.body[:-1] + bytes([host.body[-1] ^ 1]))
        part.with_name(part.name + ".log").unlink()
        assert (await store.pull(ref, seen)).main.read_bytes() == host.body
        assert "chunk 0 is replaced by what comes now" in caplog.text
        assert "looking for the chunks that are wrong" in {one.message for one in seen}

    async def test_an_oversized_partial_is_put_aside(self, store: Store, paths: Paths, host: Host) -> None:
        ref = at_url(host.url, host.body)
        host.acts = [acts.cut(HALF), acts.status(404)]
        with pytest.raises(DownloadError):
            await store.pull(ref)
        (part,) = files_in(paths.models)
        part.write_bytes(host.body + b"x")
        assert (await store.pull(ref)).main.read_bytes() == host.body
        assert [left.size for left in store.leftovers()] == [SIZE + 1]

    async def test_tensors_that_end_outside_the_file_are_refused(self, store: Store, host: Host) -> None:
        host.body = gguf(tensor_bytes=2 * SIZE)
        with pytest.raises(NotVerified, match="no usable model"):
            await store.pull(at_url(host.url, host.body))
        assert store.list() == ()
        assert [left.kind for left in store.leftovers()] == ["quarantined"]


class TestCancel:
    async def test_it_keeps_the_partial_and_gives_the_lock_back(
        self, store: Store, paths: Paths, host: Host
    ) -> None:
        never = asyncio.Event()
        host.acts = [acts.held(HALF, never)]
        ref = at_url(host.url, host.body)
        arrived = asyncio.Event()

        def look(progress: object) -> None:
            if files_in(paths.models) and files_in(paths.models)[0].stat().st_size > 0:
                arrived.set()

        pulling = asyncio.create_task(store.pull(ref, look))
        await asyncio.wait_for(arrived.wait(), 10)
        pulling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pulling
        never.set()
        assert list((paths.models / ".locks").glob("*.json")) == []
        (left,) = store.leftovers()
        assert (left.kind, left.about) == ("partial", "tiny:F32")
        stored = await store.pull(ref)
        assert host.ranges[-1] == rest(left.size)
        assert stored.main.read_bytes() == host.body
