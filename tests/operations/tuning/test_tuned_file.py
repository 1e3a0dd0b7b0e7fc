"""`tuned.json`: kept by model, engine and places; bounded, private, and begun anew when broken."""

from __future__ import annotations

import json
import logging
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.engines import Build
from appliance.operations.tuning import tuned_file
from appliance.operations.tuning.knobs import Knobs
from appliance.operations.tuning.tuned_file import ENTRIES, MAX_BYTES, Entry, keep, key_of, read
from appliance.planning import PlanRequest, make_plan
from appliance.units import GIB
from tests.planning.machines import BUILD, HOST, gpu, llama_like

ENGINE = Build("llama-server", "/opt/llama-server", "b10434", BUILD)
KNOBS = Knobs(8, 16, 2_048, 256, "off")


def entry(at: float = 1.0, n_ubatch: int = 256) -> Entry:
    return Entry(
        at=at, goal="throughput", threads=8, threads_batch=16, n_batch=2_048, n_ubatch=n_ubatch,
        flash_attn="off", prefill=1.12, decode=1.03, many=None, load=0.2,
    )  # fmt: skip


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state" / "tuned.json"


def test_what_was_kept_is_read_back_and_is_private(file: Path) -> None:
    assert keep(file, "a" * 32, entry())
    assert read(file)["a" * 32].knobs == KNOBS
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_without_a_file_nothing_is_known(file: Path) -> None:
    assert read(file) == {}


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "null", '{"v": 2, "tuned": {}}', '{"v": 1, "tuned": {"k": {"at": 1}}}',
        '{"v": 1, "tuned": 3}', "[" * 100_000, "x" * (MAX_BYTES + 1),
    ],
)  # fmt: skip
def test_a_broken_file_is_told_and_begun_anew(
    file: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    file.parent.mkdir()
    file.write_text(text)
    with caplog.at_level(logging.WARNING):
        assert read(file) == {}
    assert "begins anew" in caplog.text
    assert keep(file, "b" * 32, entry())
    assert list(read(file)) == ["b" * 32]


@pytest.mark.parametrize(
    "change", [{"n_ubatch": 0}, {"flash_attn": "maybe"}, {"prefill": -1.0}, {"threads": "many"}, {"more": 1}]
)
def test_settings_that_no_engine_takes_are_not_read(file: Path, change: dict[str, object]) -> None:
    file.parent.mkdir()
    file.write_text(json.dumps({"v": 1, "tuned": {"k": entry().model_dump() | change}}))
    assert read(file) == {}


def test_the_oldest_entries_go(file: Path) -> None:
    for n in range(ENTRIES + 3):
        assert keep(file, f"{n:032}", entry(at=float(n)))
    assert set(read(file)) == {f"{n:032}" for n in range(3, ENTRIES + 3)}


def test_a_second_measurement_takes_the_place_of_the_first(file: Path) -> None:
    keep(file, "k", entry(1.0, 256))
    keep(file, "k", entry(2.0, 128))
    assert read(file)["k"].n_ubatch == 128


def test_a_disk_that_does_not_take_it_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "state").write_text("a file where the folder should be")
    with caplog.at_level(logging.WARNING):
        assert not keep(tmp_path / "state" / "tuned.json", "k", entry())
    assert "can't be kept" in caplog.text


def test_a_file_that_another_process_holds_is_left_to_it(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    monkeypatch.setattr(tuned_file, "_WAIT_S", 0.05)
    file.parent.mkdir()
    with file.with_name("tuned.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert not keep(file, "k", entry())
    assert keep(file, "k", entry())


def test_it_holds_for_this_model_engine_and_places_alone() -> None:
    whole = make_plan(llama_like(), (gpu(23 * GIB),), HOST, PlanRequest(), model="m", engine_build=BUILD)
    part = make_plan(llama_like(), (gpu(4 * GIB),), HOST, PlanRequest(), model="m", engine_build=BUILD)
    here = key_of("5" * 64, ENGINE, whole)
    others = [
        key_of("6" * 64, ENGINE, whole),
        key_of("5" * 64, replace(ENGINE, build="llama-server b11549"), whole),
        key_of("5" * 64, replace(ENGINE, path="/usr/bin/llama-server"), whole),
        key_of("5" * 64, ENGINE, part),
        key_of("5" * 64, ENGINE, replace(whole, threads=4)),  # a container with another quota
        key_of("5" * 64, ENGINE, replace(whole, kv_type="q8_0")),
    ]
    assert here not in others
    assert len(set(others)) == len(others)
    assert here == key_of("5" * 64, ENGINE, replace(whole, ctx=4_096, parallel=1))
