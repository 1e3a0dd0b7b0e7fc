"""Prompts over an engine's life: proven once, saved, given back; and no fault ever reaches a user."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import pytest

from appliance.catalog import ModelRef
from appliance.daemon.prompt_caches import PromptCaches
from appliance.daemon.prompt_values import Limits
from appliance.engines import Build, Endpoint, Engine, Launch
from appliance.engines.slots import Shelf
from appliance.paths import Paths
from appliance.settings import PromptCache, Settings
from tests.daemon.models_of_tests import ref_of
from tests.engines.launches import launch, paths_in, plan
from tests.engines.slots.fake_slots import FakeSlots

MODEL = ref_of("ab" * 32)
SERVER = Build("llama-server", "/nonexistent/llama-server", "1", "llama-server 1")
QUICK = Limits(save_s=0.5, restore_s=0.5, prove_s=5.0, margin=0)


@dataclass
class Running:
    """An engine that is ready, as far as saved prompts are concerned."""

    build: Build
    launch: Launch
    endpoint: Endpoint | None

    def __hash__(self) -> int:
        return id(self)


@dataclass
class House:
    """The caches of a daemon, and engines to try them with."""

    paths: Paths
    settings: Settings = field(default_factory=lambda: with_cache(least_tokens=8))
    limits: Limits = QUICK
    build: Build = SERVER
    wanted: Launch = field(default_factory=lambda: launch(Path("m.gguf"), wanted=plan(ctx=4096)))
    now: float = 1e9

    def __post_init__(self) -> None:
        self.caches = self.again()

    def again(self) -> PromptCaches:
        """As the next daemon has them."""
        self.caches = PromptCaches(
            self.paths, lambda: self.settings, clock=lambda: self.now, limits=self.limits
        )
        return self.caches

    @asynccontextmanager
    async def life(self, server: FakeSlots, model: ModelRef = MODEL) -> AsyncIterator[Engine]:
        """From ready to stopped."""
        made = await self.caches.prepared(self.build, self.wanted, model)
        server.folder = made.slot_save_path or self.paths.cache
        async with server.serving() as endpoint:
            engine = cast("Engine", Running(self.build, made, endpoint))
            await self.caches.started(engine, model)
            yield engine
            self.now += 1
            await self.caches.stopping(engine, model)

    @property
    def files(self) -> list[Path]:
        return sorted(path for path in self.paths.prompts.rglob("*.slot"))


def with_cache(**changes: object) -> Settings:
    return Settings(prompt_cache=PromptCache.model_validate({"least_tokens": 8, **changes}))


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(paths_in(tmp_path))


async def test_prompts_come_back_newest_first_and_the_proof_is_made_once(house: House) -> None:
    first = FakeSlots(Path())
    async with house.life(first):
        assert first.calls == ["save 0", "erase 0", "restore 0", "erase 0"]
        first.used(1, 300)
        first.used(0, 200, first=1_000)
    assert house.caches.snapshot.tokens == 500
    house.again()
    second = FakeSlots(Path())
    async with house.life(second):
        assert second.calls == ["restore 0", "restore 1"]
        assert [len(tokens) for tokens in second.held] == [200, 300]
        assert house.caches.notes() == ()
    assert second.calls == ["restore 0", "restore 1"]  # no request came: their files are there already
    third = FakeSlots(Path())
    async with house.life(third):
        third.used(1, 350)
    assert [call for call in third.calls if "save" in call] == ["save 1"]
    assert sorted(entry.tokens for entry in Shelf(house.paths.prompts).entries()) == [200, 350]
    assert len(house.files) == 2


async def test_a_conversation_that_is_too_short_is_worked_on_again(house: House) -> None:
    server = FakeSlots(Path())
    async with house.life(server):
        server.used(0, 7)
        server.used(1, 8)
    assert [entry.tokens for entry in Shelf(house.paths.prompts).entries()] == [8]


@pytest.mark.parametrize(
    "change",
    [
        lambda house: replace(
            house.wanted, plan=replace(house.wanted.plan, flags=flags(house, "-c", "2048"))
        ),
        lambda house: replace(
            house.wanted, plan=replace(house.wanted.plan, flags=flags(house, "-ctk", "q8_0"))
        ),
    ],
    ids=["context", "KV type"],
)
async def test_another_cache_of_the_same_model_gets_nothing(house: House, change: object) -> None:
    await saved_once(house)
    house.wanted = change(house)  # type: ignore[operator]
    server = FakeSlots(Path())
    async with house.life(server):
        assert server.held == [[], []]


def flags(house: House, name: str, value: str) -> tuple[str, ...]:
    found = house.wanted.plan.flags
    at = found.index(name)
    return (*found[: at + 1], value, *found[at + 2 :])


async def saved_once(house: House, tokens: int = 300) -> None:
    server = FakeSlots(Path())
    async with house.life(server):
        server.used(0, tokens)
    assert len(house.files) == 1


async def test_another_build_or_model_gets_nothing(house: House) -> None:
    await saved_once(house)
    house.build = replace(SERVER, version="2")
    async with house.life(FakeSlots(Path())) as engine:
        assert engine.launch.slot_save_path != house.files[0].parent
    house.build = SERVER
    server = FakeSlots(Path())
    async with house.life(server, ref_of("cd" * 32)):
        assert server.held == [[], []]
    server = FakeSlots(Path(), build="b2-the-program-behind-the-wrapper")
    async with house.life(server):
        assert server.held == [[], []]
    assert house.files == []


async def test_files_that_no_index_lists_go_after_the_next_save_and_by_changed_settings(house: House) -> None:
    await saved_once(house)
    (old,) = house.files
    server = FakeSlots(Path())
    async with house.life(server):
        server.used(0, 400)
        (old.parent / "index.json").write_text("junk")
    assert not old.exists()
    assert [entry.tokens for entry in Shelf(house.paths.prompts).entries()] == [400]
    assert len(house.files) == 1
    house.settings = with_cache(disk="1B")
    await house.caches.apply()
    assert (house.files, house.caches.snapshot.files) == ([], 0)


@pytest.mark.parametrize("damage", ["cut", "flipped"])
async def test_a_damaged_file_is_removed_and_never_given_away(house: House, damage: str) -> None:
    await saved_once(house)
    (file,) = house.files
    data = bytearray(file.read_bytes())
    data[10] ^= 1
    file.write_bytes(data[:-1] if damage == "cut" else data)
    server = FakeSlots(Path())
    async with house.life(server):
        assert [call for call in server.calls if "restore" in call] == []
    assert house.files == []


async def test_what_an_engine_refuses_is_removed_and_its_slot_is_empty(house: House) -> None:
    await saved_once(house)
    server = FakeSlots(Path(), faults={"restore": "500"})
    async with house.life(server):
        assert server.calls == ["restore 0", "erase 0"]
    assert house.files == []


async def test_a_file_over_which_an_engine_dies_is_tried_once(house: House) -> None:
    await saved_once(house)
    async with house.life(FakeSlots(Path(), faults={"restore": "hangs"})):
        pass
    house.again()
    server = FakeSlots(Path())
    async with house.life(server):
        assert server.calls == []
    assert house.files == []


@pytest.mark.parametrize("fault", ["500", "501", "garbage", "dies", "fewer"])
async def test_a_save_that_fails_leaves_nothing_and_keeps_what_was_there(
    house: House, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    await saved_once(house)
    server = FakeSlots(Path(), faults={"save": fault})
    with caplog.at_level(logging.INFO, "appliance.prompts"):
        async with house.life(server):
            server.used(0, 400)
            server.used(1, 400)
    assert [entry.tokens for entry in Shelf(house.paths.prompts).entries()] == [300]
    assert len(house.files) == 1
    assert "slot 1 is not saved" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize("fault", ["hangs", "half, then nothing"])
async def test_a_stop_never_waits_for_an_engine_that_hangs(house: House, fault: str) -> None:
    await saved_once(house)
    server = FakeSlots(Path(), faults={"save": fault})
    async with house.life(server):
        server.used(0, 400)
        begun = time.monotonic()
    assert time.monotonic() - begun < 5  # of a limit of half a second, on a busy machine
    assert [entry.tokens for entry in Shelf(house.paths.prompts).entries()] == [300]
    assert len(house.files) == 1


@pytest.mark.parametrize("action", ["slots", "props"])
@pytest.mark.parametrize("fault", ["500", "garbage", "hangs", "dies"])
async def test_an_engine_that_can_not_be_asked_is_stopped_all_the_same(
    house: House, action: str, fault: str
) -> None:
    server = FakeSlots(Path())
    async with house.life(server):
        server.used(0, 400)
        server.faults[action] = fault
    assert house.files == []


async def test_a_proof_that_fails_is_told_and_nothing_is_saved(house: House) -> None:
    server = FakeSlots(Path(), faults={"restore": "forgets"})
    async with house.life(server):
        server.used(0, 400)
        (note,) = house.caches.notes()
        assert note.code == "prompts_not_saved"
        assert "used 0 of 32 tokens" in note.detail
    assert house.files == []


async def test_busy_slots_are_left_alone(house: House) -> None:
    server = FakeSlots(Path())
    async with house.life(server):
        server.used(0, 400)
        server.used(1, 400)
        server.busy = {0}
    assert [call for call in server.calls if "save" in call][1:] == ["save 1"]


async def test_a_prompt_that_may_not_be_written_is_in_no_file(house: House) -> None:
    server = FakeSlots(Path())
    async with house.life(server) as engine:
        assert engine.endpoint is not None
        with house.caches.privacy.request(
            engine.endpoint, private=True, slots=2, spreads=False, began=lambda: True
        ) as more:
            server.used(more["id_slot"], 400, first=7_000)
        server.used(0, 400)
    (file,) = house.files
    assert "7000" not in file.read_text()
    assert [call for call in server.calls if call.startswith("save")] == ["save 0", "save 0"]


async def test_where_it_may_be_in_any_slot_no_slot_is_saved(house: House) -> None:
    server = FakeSlots(Path())
    async with house.life(server) as engine:
        assert engine.endpoint is not None
        with house.caches.privacy.request(
            engine.endpoint, private=True, slots=2, spreads=True, began=lambda: True
        ):
            server.used(0, 400)
    assert house.files == []


async def test_who_removes_all_gets_nothing_of_what_runs_back_on_the_disk(house: House) -> None:
    await saved_once(house)
    server = FakeSlots(Path())
    async with house.life(server):
        server.used(0, 400)
        assert (await house.caches.prune(private=False)).files == 0
        assert (await house.caches.prune(private=True)).files == 1
        assert house.caches.snapshot.files == 0
    assert house.files == []


async def test_switched_off_it_saves_nothing_and_removes_what_is_there(house: House) -> None:
    await saved_once(house)
    house.settings = with_cache(enabled=False)
    server = FakeSlots(Path())
    async with house.life(server) as engine:
        assert engine.launch.slot_save_path is None
        server.used(0, 400)
    assert len(house.files) == 1
    await house.again().begin()
    await house.caches.close()
    assert house.files == []
    assert not house.caches.snapshot.enabled


async def test_the_budget_holds_and_the_newest_stay(house: House) -> None:
    house.settings = with_cache(disk="25KB")
    for number in range(4):
        house.wanted = replace(
            house.wanted, plan=replace(house.wanted.plan, flags=flags(house, "-c", str(4096 + number)))
        )
        server = FakeSlots(Path(), size=10_000)
        async with house.life(server):
            server.used(0, 100 + number)
        assert sum(file.stat().st_size for file in house.files) <= 25_000
    assert sorted(entry.tokens for entry in Shelf(house.paths.prompts).entries()) == [102, 103]


async def test_a_full_disk_is_a_reason_and_no_failure(house: House, caplog: pytest.LogCaptureFixture) -> None:
    house.limits = replace(QUICK, margin=1 << 62)
    house.wanted = replace(
        house.wanted,
        plan=replace(house.wanted.plan, host=replace(house.wanted.plan.host, kv=8192 * 100)),
    )
    house.again()
    server = FakeSlots(Path())
    with caplog.at_level(logging.INFO, "appliance.prompts"):
        async with house.life(server):
            server.used(0, 4_000)
    assert house.files == []
    assert "there is room for 0" in caplog.text


async def test_what_is_too_old_goes_when_an_engine_starts(house: House) -> None:
    await saved_once(house)
    house.now += 8 * 86_400
    server = FakeSlots(Path())
    async with house.life(server):
        assert server.held == [[], []]
    assert house.files == []


async def test_a_folder_that_can_not_be_made_is_no_failure(house: House) -> None:
    house.paths.prompts.parent.mkdir(exist_ok=True)
    house.paths.prompts.write_text("a file stands there")
    server = FakeSlots(Path())
    async with house.life(server) as engine:
        server.used(0, 400)
        assert engine.launch.slot_save_path is None
        (note,) = house.caches.notes()
        assert "no folder" in note.detail


async def test_two_engines_stop_at_once_within_one_budget(house: House) -> None:
    house.settings = with_cache(disk="15KB")
    other = House(house.paths, settings=house.settings)
    other.caches = house.caches
    other.wanted = replace(house.wanted, plan=replace(house.wanted.plan, flags=flags(house, "-c", "1024")))

    async def one(which: House) -> None:
        server = FakeSlots(Path(), size=10_000)
        async with which.life(server):
            server.used(0, 500)

    await asyncio.gather(one(house), one(other))
    assert sum(file.stat().st_size for file in house.files) <= 15_000
    assert len(house.files) == len(Shelf(house.paths.prompts).entries()) == 1
