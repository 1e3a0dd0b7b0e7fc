"""What goes, what stays, and that the figures are true."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from appliance.catalog import ModelRef
from appliance.errors import ApplianceError, NotVerified
from appliance.paths import Paths
from appliance.store import Pruned, Store, layout, removal
from appliance.store.layout import Layout
from appliance.store.lock import Lock
from tests.store import server as acts
from tests.store.helpers import MIB, QUICK, at_url, made, pin
from tests.store.server import Host

DAY = 86_400.0
CHUNK = 128 << 10
EVERYTHING: dict[str, Any] = {"partials": True, "quarantine": True, "unused_s": 30 * DAY}


@pytest.fixture
def store(paths: Paths) -> Store:
    return Store(paths, limits=replace(QUICK, chunk=CHUNK, segment=4 * CHUNK))


def on_disk(folder: Path) -> int:
    """What the files under `folder` take, each inode once."""
    found = {(s.st_dev, s.st_ino): s.st_blocks * 512 for s in (p.lstat() for p in folder.rglob("*"))}
    folders = {(s.st_dev, s.st_ino) for s in (p.lstat() for p in folder.rglob("*") if p.is_dir())}
    return sum(size for key, size in found.items() if key not in folders)


def kinds(items: Sequence[Pruned]) -> list[str]:
    return sorted(item.kind for item in items)


async def partial(store: Store, host: Host, ref: ModelRef | None = None) -> None:
    """Leave an unfinished transfer of a MiB."""
    host.acts = [first_mib] * 50
    with pytest.raises(ApplianceError):
        await store.pull(ref or at_url(host.url, host.body))
    host.acts = []


async def first_mib(host: Host, request: web.Request) -> web.StreamResponse:
    """Has the first MiB only."""
    start = int(request.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")[0])
    return await (acts.status(404) if start >= MIB else acts.honest)(host, request)


async def quarantined(store: Store, host: Host) -> None:
    """Leave a file in quarantine and nothing else."""
    ref = at_url(host.url, host.body)
    main = (await store.pull(ref)).main
    main.write_bytes(bytes(len(host.body)))
    with pytest.raises(NotVerified):
        await store.verify(ref)


class TestWhatGoes:
    async def test_a_dry_run_says_exactly_what_the_real_one_frees(
        self, store: Store, host: Host, paths: Paths
    ) -> None:
        await quarantined(store, host)
        source = at_url(host.url, host.body).variant.source
        await partial(store, host, made(source, pin("begun.gguf", host.body), model_id="begun"))
        old = made(at_url(host.url, host.body).variant.source, pin("old.gguf", host.body), model_id="old")
        await store.pull(old)
        age(paths, "old", 40 * DAY)
        dead_lock(paths, "gone~F32")
        (paths.models / "empty" / "F32-0123456789ab").mkdir(parents=True)

        listed = store.prune(**EVERYTHING)
        assert kinds(listed) == ["empty", "empty", "lock", "partial", "quarantined", "unused"]
        before = on_disk(paths.models)
        assert store.prune(**EVERYTHING, dry_run=False) == listed
        assert sum(item.size for item in listed) == before - on_disk(paths.models)
        assert on_disk(paths.models) == 0
        assert [path.name for path in paths.models.iterdir() if not path.name.startswith(".")] == []
        assert store.prune(**EVERYTHING) == ()

    async def test_nothing_goes_that_was_not_asked_for(self, store: Store, host: Host, paths: Paths) -> None:
        await quarantined(store, host)
        await partial(store, host)
        await store.pull(
            made(at_url(host.url, host.body).variant.source, pin("a.gguf", host.body), model_id="a")
        )
        before = on_disk(paths.models)
        assert store.prune(dry_run=False) == ()
        assert on_disk(paths.models) == before

    async def test_a_partial_goes_with_its_log_and_its_holes_are_not_counted(
        self, store: Store, host: Host, paths: Paths
    ) -> None:
        await partial(store, host)
        (part,) = paths.models.rglob("*.part")
        os.truncate(part, 100 * MIB)
        (item,) = store.prune(partials=True, dry_run=False)
        assert MIB / 2 <= item.size < 3 * MIB
        assert item.about == "tiny:F32"
        assert not (paths.models / "tiny").exists()

    async def test_quarantined_files_go_with_their_notes(
        self, store: Store, host: Host, paths: Paths
    ) -> None:
        await quarantined(store, host)
        item = next(i for i in store.prune(quarantine=True, dry_run=False) if i.kind == "quarantined")
        assert item.about.startswith("tiny:F32: ")
        assert list((paths.models / ".quarantine").iterdir()) == []

    async def test_the_finished_files_of_an_unfinished_set_are_partial(
        self, store: Store, host: Host, paths: Paths
    ) -> None:
        ref = at_url(host.url, host.body)
        main = (await store.pull(ref)).main
        (main.parent / layout.RECORD).unlink()
        (item,) = store.prune(partials=True)
        assert (item.path, item.about) == (main, "tiny:F32, one file of a model that is not whole")

    async def test_a_record_that_can_not_be_read_makes_nothing_partial(
        self, store: Store, host: Host
    ) -> None:
        main = (await store.pull(at_url(host.url, host.body))).main
        (main.parent / layout.RECORD).write_text("{")
        assert store.prune(**EVERYTHING) == ()


class TestWhatStays:
    async def test_a_model_ages_from_its_last_load(self, store: Store, host: Host, paths: Paths) -> None:
        await store.pull(at_url(host.url, host.body))
        assert store.last_used("tiny:F32") is None
        age(paths, "tiny", 40 * DAY)
        assert kinds(store.prune(unused_s=30 * DAY)) == ["unused"]
        store.touch("tiny:F32")
        used = store.last_used("tiny:F32")
        assert used is not None
        assert time.time() - used < 10
        assert store.prune(unused_s=30 * DAY) == ()

    async def test_what_is_in_use_stays(self, store: Store, host: Host, paths: Paths) -> None:
        await store.pull(at_url(host.url, host.body))
        age(paths, "tiny", 40 * DAY)
        assert store.prune(unused_s=DAY, dry_run=False, keep=frozenset({"tiny:F32"})) == ()
        assert len(store.list()) == 1

    async def test_what_is_being_fetched_stays(self, store: Store, host: Host, paths: Paths) -> None:
        await partial(store, host)
        lock = Lock(Layout(paths.models).lock("tiny:F32"))
        assert lock.acquire() is None
        for dry_run in (True, False):
            assert store.prune(**EVERYTHING, dry_run=dry_run) == ()
        lock.release()
        assert kinds(store.prune(**EVERYTHING)) == ["partial"]

    async def test_references_stay(self, store: Store, host: Host, paths: Paths, tmp_path: Path) -> None:
        mine = tmp_path / "mine.gguf"
        mine.write_bytes(host.body)
        await store.adopt(at_url(host.url, host.body), [mine], "reference")
        age(paths, "tiny", 400 * DAY)
        assert store.prune(**EVERYTHING, dry_run=False) == ()
        assert store.list()[0].main == mine

    async def test_a_hard_link_elsewhere_frees_nothing(
        self, store: Store, host: Host, paths: Paths, tmp_path: Path
    ) -> None:
        main = (await store.pull(at_url(host.url, host.body))).main
        other = tmp_path / "other.gguf"
        os.link(main, other)
        age(paths, "tiny", 40 * DAY)
        (item,) = store.prune(unused_s=DAY, dry_run=False)
        assert item.size < 64 << 10
        assert other.read_bytes() == host.body

    def test_two_names_that_go_together_are_counted_once(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_bytes(bytes(MIB))
        os.link(tmp_path / "a", tmp_path / "b")
        tally = removal.Tally()
        assert [tally.freed(tmp_path / "a"), tally.freed(tmp_path / "b")] == [0, MIB]


class TestHoldings:
    async def test_a_partial_says_how_much_is_here(self, store: Store, host: Host) -> None:
        await partial(store, host)
        held = store.holdings()["tiny:F32"]
        assert held.arrived is not None
        assert MIB / 2 <= held.arrived <= 2 * MIB
        assert held.disk >= held.arrived
        await store.pull(at_url(host.url, host.body))
        held = store.holdings()["tiny:F32"]
        assert (held.arrived, held.damaged) == (None, False)
        assert held.disk >= len(host.body)

    async def test_quarantine_is_damage(self, store: Store, host: Host) -> None:
        await quarantined(store, host)
        assert store.holdings()["tiny:F32"].damaged

    async def test_a_damaged_chunk_counts_as_not_here(self, store: Store, host: Host) -> None:
        ref = at_url(host.url, host.body)
        main = (await store.pull(ref)).main
        with main.open("r+b") as file:
            file.write(b"x")
        with pytest.raises(NotVerified):
            await store.verify(ref)
        assert store.holdings()["tiny:F32"].arrived == len(host.body) - CHUNK


class TestRefusals:
    async def test_what_can_not_be_removed_is_named(
        self, store: Store, host: Host, paths: Paths, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await partial(store, host)

        real = Path.unlink

        def picky(path: Path, missing_ok: bool = False) -> None:
            if path.name.endswith(".part"):
                raise PermissionError(13, "Permission denied")
            real(path, missing_ok)

        monkeypatch.setattr(Path, "unlink", picky)
        with pytest.raises(ApplianceError, match=r"\.part can't be removed"):
            store.prune(partials=True, dry_run=False)


def age(paths: Paths, model_id: str, seconds: float) -> None:
    """Let a model have arrived so long ago."""
    (record,) = (paths.models / model_id).glob("*/record.json")
    document = json.loads(record.read_text())
    record.write_text(json.dumps(document | {"verified_at": time.time() - seconds}))


def dead_lock(paths: Paths, name: str) -> None:
    path = Layout(paths.models).locks / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text("{}")
