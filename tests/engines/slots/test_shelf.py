"""Files of saved prompts: what is not as it was saved never reaches an engine."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance.engines.slots import Entry, Said, Shelf
from appliance.engines.slots.index import NAME

KEY, OTHER = "ab" * 16, "cd" * 16
SAID = Said("b10434", 4096, 2)
HOUR = 3_600.0


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def shelf(tmp_path: Path, clock: Clock) -> Shelf:
    return Shelf(tmp_path / "prompts", clock=clock)


def saved(shelf: Shelf, key: str = KEY, *, size: int = 1_000, fill: bytes = b"x") -> Entry:
    name = shelf.new_name()
    (shelf.prepare(key) / name).write_bytes(fill * size)
    return shelf.add(key, name, 300, SAID)


def path_of(shelf: Shelf, entry: Entry) -> Path:
    return shelf.folder(entry.key) / entry.name


def test_what_was_saved_is_listed_given_and_private(shelf: Shelf, clock: Clock) -> None:
    entry = saved(shelf)
    assert shelf.entries(KEY) == (entry,)
    assert shelf.entries(OTHER) == ()
    clock.now += 60
    assert shelf.refusal(entry, SAID) is None
    used = shelf.given(entry, clock())
    assert (used.used_at - entry.used_at, used.saved_at) == (60, entry.saved_at)
    assert shelf.refusal(used, SAID) is None
    modes = {
        path: stat.S_IMODE(path.stat().st_mode) for path in (shelf.folder(KEY).parent, shelf.folder(KEY))
    }
    assert set(modes.values()) == {0o700}
    assert {stat.S_IMODE(path.stat().st_mode) for path in shelf.folder(KEY).iterdir()} == {0o600}


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[500] ^= 1
    path.write_bytes(data)


def link(path: Path) -> None:
    target = path.with_name("elsewhere")
    path.rename(target)
    path.symlink_to(target)


@pytest.mark.parametrize(
    "damage",
    [
        flip,
        lambda path: os.truncate(path, 999),
        lambda path: path.write_bytes(b"x" * 1_001),
        lambda path: path.unlink(),
        link,
    ],
    ids=["a flipped bit", "cut", "longer", "gone", "a link"],
)
def test_a_changed_file_is_refused(shelf: Shelf, damage: Callable[[Path], object]) -> None:
    entry = saved(shelf)
    damage(path_of(shelf, entry))
    assert shelf.refusal(entry, SAID) is not None


@pytest.mark.parametrize(
    "said", [Said("b10435", 4096, 2), Said("b10434", 8192, 2), Said("b10434", 4096, 1)], ids=str
)
def test_an_engine_that_says_something_else_of_itself_gets_nothing(shelf: Shelf, said: Said) -> None:
    assert shelf.refusal(saved(shelf), said) == "it is from an engine that says something else of itself"


def test_a_file_over_which_an_engine_ended_is_not_given_again(shelf: Shelf) -> None:
    entry = saved(shelf)
    assert shelf.refusal(entry, SAID) is None  # an engine reads it, and nobody hears of it any more
    assert shelf.refusal(entry, SAID) == "an engine ended while it read it"
    assert shelf.sweep(10_000, HOUR).files == 1
    assert not path_of(shelf, entry).exists()


def test_what_a_killed_engine_or_daemon_left_is_swept_away(shelf: Shelf) -> None:
    whole = saved(shelf)
    half = shelf.folder(KEY) / shelf.new_name()
    half.write_bytes(b"half")
    unlisted = shelf.folder(KEY) / "0123456789abcdef.slot"
    unlisted.write_bytes(b"renamed, and then the power went")
    foreign = shelf.folder(KEY) / "mine.txt"
    foreign.write_text("not ours")
    assert shelf.sweep(10_000, HOUR, in_use=frozenset({KEY})).files == 1
    assert (half.exists(), unlisted.exists()) == (True, False)  # an engine may be writing the half one
    assert shelf.sweep(10_000, HOUR).files == 1
    assert (half.exists(), unlisted.exists(), foreign.exists()) == (False, False, True)
    assert shelf.entries() == (whole,)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"v": 2, "files": []}',
        '{"v": 1, "files": {}}',
        '{"v": 1, "files": [1, null, {}]}',
        "[" * 50_000,
    ],
)
def test_a_broken_index_lists_nothing_and_its_files_go(shelf: Shelf, text: str) -> None:
    entry = saved(shelf)
    (shelf.folder(KEY) / NAME).write_text(text)
    assert shelf.entries() == ()
    assert shelf.refusal(entry, SAID) == "it is not listed"
    shelf.sweep(10_000, HOUR)
    assert not path_of(shelf, entry).exists()


def test_with_a_broken_index_only_what_is_being_written_stays_in_a_folder_in_use(shelf: Shelf) -> None:
    entry, name = saved(shelf), shelf.new_name()
    (shelf.folder(KEY) / NAME).write_text("junk")
    (shelf.folder(KEY) / name).write_bytes(b"x" * 500)
    assert shelf.sweep(10_000, HOUR, in_use=frozenset({KEY})).n_bytes == 1_000
    assert not path_of(shelf, entry).exists()
    assert shelf.add(KEY, name, 300, SAID) in shelf.entries()
    half = shelf.new_name()
    shelf.discard(KEY, half)
    (shelf.folder(KEY) / half).write_bytes(b"written on after it was given up")
    assert shelf.sweep(10_000, HOUR, in_use=frozenset({KEY})).files == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [("name", "../../etc/passwd"), ("name", "new-0123456789abcdef.slot"), ("bytes", -1), ("tokens", True),
     ("saved_at", float("nan")), ("used_at", "soon"), ("xxh3", "zz"), ("engine", ["b", 1])],
)  # fmt: skip
def test_a_row_that_is_not_as_it_should_be_is_left_out(shelf: Shelf, field: str, value: object) -> None:
    good, bad = saved(shelf), saved(shelf)
    file = shelf.folder(KEY) / NAME
    document = json.loads(file.read_text())
    document["files"][1][field] = value
    file.write_text(json.dumps(document))
    assert shelf.entries() == (good,)
    assert shelf.refusal(bad, SAID) is not None


def test_budget_and_age_hold_over_all_models(shelf: Shelf, clock: Clock) -> None:
    old = saved(shelf)
    clock.now += 2 * HOUR
    saved(shelf, OTHER)
    clock.now += 1
    newest = {saved(shelf), saved(shelf, OTHER)}
    clock.now += 1
    assert shelf.sweep(2_500, 3 * HOUR).files == 2
    assert set(shelf.entries()) == newest
    clock.now += 3 * HOUR
    assert shelf.sweep(2_500, 3 * HOUR).n_bytes == 2_000
    assert not shelf.folder(KEY).exists()
    assert not path_of(shelf, old).exists()


def test_all_goes_and_an_engine_can_still_write_there(shelf: Shelf) -> None:
    saved(shelf), saved(shelf, OTHER)
    (shelf.folder(KEY) / shelf.new_name()).write_bytes(b"half")
    assert shelf.clear().files == 3
    assert [path for path in shelf.folder(KEY).parent.rglob("*") if path.is_file()] == []
    assert shelf.folder(KEY).is_dir()


def test_a_folder_that_is_a_link_is_not_used(shelf: Shelf, tmp_path: Path) -> None:
    shelf.prepare(OTHER)
    shelf.folder(KEY).symlink_to(tmp_path)
    with pytest.raises(OSError, match="link"):
        shelf.prepare(KEY)
    assert shelf.sweep(10_000, HOUR).files == 0
