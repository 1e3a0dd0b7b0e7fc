"""A repair in the daemon: its row ends once, and says what was wrong and what it took."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from appliance.client import DownloadRow
from appliance.daemon.fetching import Fetching
from appliance.daemon.local import LocalSide
from appliance.daemon.served import ServingSnapshot
from appliance.engines import EngineState
from appliance.errors import ApplianceError, ModelMissing, NotVerified
from appliance.gateway.ports import Served
from appliance.monitor import Monitor
from appliance.settings import Governor
from tests.daemon.shelf import Shelf, pool_of
from tests.store.helpers import MIB, flip
from tests.store.server import Host, throttled


async def pulled(shelf: Shelf) -> Path:
    """The model `a`, fetched."""
    await shelf.ended((await shelf.downloads.start("a:F32")).id)
    stored = shelf.library.store.find("a:F32")
    assert stored is not None
    return stored.main


async def repaired(shelf: Shelf) -> tuple[list[DownloadRow], dict[str, Any]]:
    """Every row of a repair of `a` as a client reads it, and the last one as it is sent."""
    started = await shelf.downloads.start("a:F32", repair=True)
    seen: list[DownloadRow] = []

    def look() -> bool:
        row = shelf.row(started.id)
        seen.append(DownloadRow.parse(row.to_json()))
        return row.finished

    await shelf.until(look)
    return seen, shelf.row(started.id).to_json()


async def test_damage_that_is_found_on_the_way_is_not_its_end(shelf: Shelf, host: Host) -> None:
    flip(await pulled(shelf), 9 * MIB)
    host.acts = [throttled(0.01)] * 20
    seen, last = await repaired(shelf)
    assert [row.phase for row in seen if row.ended] == ["done"], "only the last row ends it"
    assert "failed" not in {row.phase for row in seen}
    assert (last["phase"], last["mended"], last["fetched"]) == ("done", True, 8 * MIB)
    (damage,) = last["damage"]
    assert (damage["file"], damage["kind"], damage["ranges"]) == (
        "tiny.gguf", "changed", [[8 * MIB, 16 * MIB]],
    )  # fmt: skip
    assert seen[-1].damage == tuple(last["damage"])


async def test_a_whole_model_is_said_to_be_whole(shelf: Shelf) -> None:
    await pulled(shelf)
    _, last = await repaired(shelf)
    assert (last["phase"], last["mended"], last["fetched"], last["damage"]) == ("done", False, 0, [])


async def test_a_repair_that_fetches_nothing_can_have_mended(shelf: Shelf) -> None:
    path = await pulled(shelf)
    with path.open("ab") as file:
        file.write(b"more")
    os.truncate(path, path.stat().st_size - 4)  # the same bytes under another time, and no record
    path.with_name("record.json").unlink()
    _, last = await repaired(shelf)
    assert (last["mended"], last["fetched"]) == (True, 0)


def test_a_row_ends_by_the_daemons_word_only() -> None:
    row = {"id": "1", "ref": "a:F32", "phase": "failed"}
    assert DownloadRow.parse(row | {"finished": False}).ended is False
    assert DownloadRow.parse(row | {"finished": True}).ended is True
    assert DownloadRow.parse(row).ended is True, "an older daemon does not say"


class Loads:
    """A served model without an engine: what would be loaded is noted."""

    def __init__(self, shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pool, self.here = pool_of(shelf.library)
        self.loaded: list[str] = []
        self.ref = shelf.library.resolve("a")
        self.serving = self.pool.seat(self.ref).serving

        async def load(ref: Any, wishes: Any, **_: object) -> None:
            self.loaded.append(ref.ref)
            self.put("ready")

        monkeypatch.setattr(self.serving, "_load", load)
        shelf.downloads._work = Fetching(lambda: shelf.library, self.pool, self.here)
        self.pool.start()

    def put(self, state: EngineState, error: ApplianceError | None = None) -> None:
        self.serving._set(ServingSnapshot(ref=self.ref, state=state, error=error))


async def test_a_pull_loads_again_what_only_lacked_its_files(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = Loads(shelf, monkeypatch)
    try:
        loads.put("ready")
        await loads.pool.unload(loads.pool.seat(loads.ref), ModelMissing("a:F32 was removed."))
        assert loads.serving.snapshot.state == "absent"
        await pulled(shelf)
        await shelf.until(lambda: loads.loaded == ["a:F32"])
        loads.put("failed", NotVerified("a:F32 is damaged on this disk; it is not used."))
        await pulled(shelf)
        await shelf.until(lambda: loads.loaded == ["a:F32"] * 2)
        await loads.serving.unload()
        await pulled(shelf)
        assert loads.loaded == ["a:F32"] * 2, "what a person stopped stays so"
    finally:
        await loads.pool.stop()


async def test_a_repair_stops_a_damaged_model_that_is_served_and_loads_it_again(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = Loads(shelf, monkeypatch)
    try:
        path = await pulled(shelf)
        loads.put("ready")
        await repaired(shelf)
        assert loads.loaded == []
        flip(path, 9 * MIB)
        await repaired(shelf)
        await shelf.until(lambda: loads.loaded == ["a:F32"])
    finally:
        await loads.pool.stop()


async def test_a_refused_request_says_how_the_model_comes_back(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = Loads(shelf, monkeypatch)
    try:
        local = LocalSide(shelf.library, loads.pool, loads.here, Monitor(Governor()))
        served = Served("a", "a:F32", ("chat",), True)
        loads.put("absent")
        view = local.view(served)
        assert view is not None
        assert "`appliance models load a:F32` loads it again" in view.detail
        await loads.pool.unload(
            loads.pool.seat(loads.ref),
            ModelMissing("a:F32 was removed.", hint="`appliance models pull a:F32`"),
        )
        view = local.view(served)
        assert view is not None
        assert "was removed. `appliance models pull a:F32`" in view.detail
    finally:
        await loads.pool.stop()
