"""The ground floor: errors, text, units, paths."""

from __future__ import annotations

import os
import stat
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance import errors, paths, units
from appliance.text import clean, clean_line, decode


@given(st.text())
def test_cleaned_text_holds_nothing_that_drives_a_terminal(foreign: str) -> None:
    cleaned = clean(foreign)
    for char in cleaned:
        assert char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cs")
    assert "\u202e" not in cleaned
    assert clean(cleaned) == cleaned


@given(st.text(), st.text())
def test_cleaning_has_no_state_so_a_split_sequence_cannot_slip_through(left: str, right: str) -> None:
    assert clean(left) + clean(right) == clean(left + right)


@pytest.mark.parametrize(
    ("foreign", "expected"),
    [
        ("\x1b]52;c;aGk=\x07plain", "]52;c;aGk=plain"),
        ("\x9b31mred", "31mred"),
        ("a\u202eb\u2066c", "abc"),
        ("héllo 模型 🙂", "héllo 模型 🙂"),
    ],
)
def test_known_attacks_lose_their_control_characters(foreign: str, expected: str) -> None:
    assert clean(foreign) == expected


def test_lines_are_cut_and_bytes_never_fail() -> None:
    assert clean_line("a\nb\tc") == "a b c"
    assert clean_line("x" * 50, 10) == "x" * 9 + "…"
    assert decode(b"ok \xff\x1b[0m") == "ok \ufffd[0m"


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [("512MiB", 512 * 2**20), ("8GiB", 8 * 2**30), ("1.5 GiB", 3 * 2**29), ("10", 10), ("1kB", 1000)],
)
def test_sizes(text: str, n_bytes: int) -> None:
    assert units.parse_size(text) == n_bytes


@given(st.integers(min_value=0, max_value=2**60))
def test_a_written_size_reads_back_exactly(n_bytes: int) -> None:
    assert units.parse_size(units.write_size(n_bytes)) == n_bytes


@given(st.integers(min_value=0, max_value=10**9))
def test_a_written_duration_reads_back_exactly(milliseconds: int) -> None:
    seconds = milliseconds / 1000
    assert units.parse_duration(units.write_duration(seconds)) == pytest.approx(seconds, rel=1e-5)


@pytest.mark.parametrize("text", ["", "MiB", "-1s", "5 parsecs", "1e3"])
def test_a_size_or_duration_that_cannot_be_read_shows_how_to_write_it(text: str) -> None:
    with pytest.raises(ValueError, match="write it like"):
        units.parse_size(text)
    with pytest.raises(ValueError, match="write it like"):
        units.parse_duration(text)


def test_unknown_is_never_shown_as_zero() -> None:
    assert (units.size(None), units.mib(None), units.duration(None)) == ("n/a", "n/a", "n/a")
    assert (units.size(0), units.size(98_362_432)) == ("0 B", "93.8 MiB")
    assert [units.duration(s) for s in (0.35, 8.2, 204, 8040)] == ["350 ms", "8.2 s", "3 m 24 s", "2 h 14 m"]
    assert [units.about(s) for s in (None, -3, 40, 720, 7_200, 259_200)] == [
        "n/a", "0 s", "40 s", "12 min", "2 h", "3 d",
    ]  # fmt: skip


def test_every_error_has_an_exit_code_of_the_contract_and_a_code_of_its_own() -> None:
    known = [
        value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)
    ]
    assert {kind.exit_code for kind in known if issubclass(kind, errors.ApplianceError)} == {1, 2, 3, 4, 5}
    codes = [kind.code for kind in known if issubclass(kind, errors.ApplianceError)]
    assert len(codes) == len(set(codes))


def test_one_variable_puts_all_folders_under_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("APPLIANCE_HOME", str(tmp_path / "home"))
    found = paths.find().make()
    for folder in (found.config, found.data, found.state, found.cache):
        assert folder.is_relative_to(tmp_path / "home")
        assert folder.is_dir()
    assert stat.S_IMODE(found.state.stat().st_mode) == 0o700
    assert stat.S_IMODE(found.runtime.stat().st_mode) == 0o700


def test_a_home_with_a_long_path_still_gets_a_short_private_socket_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("APPLIANCE_HOME", str(tmp_path / ("x" * 120)))
    found = paths.find().make()
    assert len(os.fsencode(found.runtime / "engine-00000000.sock")) <= 107
    assert stat.S_IMODE(found.runtime.stat().st_mode) == 0o700
    assert paths.find().runtime == found.runtime
    found.runtime.rmdir()


def test_a_folder_that_cannot_be_used_is_an_error_in_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "home").write_text("a file, not a folder", encoding="utf-8")
    monkeypatch.setenv("APPLIANCE_HOME", str(tmp_path / "home"))
    with pytest.raises(errors.UsageError, match="can't be used"):
        paths.find().make()
