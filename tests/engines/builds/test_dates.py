"""The day of a build."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.engines import EngineKind
from appliance.engines.builds.dates import Day, build_number, day_of, reckoned


@pytest.mark.parametrize(
    ("kind", "version", "number"),
    [
        ("llama-server", "10434 (7e4c0a9)", 10434),
        ("llama-server", "b8146", 8146),
        ("llama-server", "0.8.0 (build 11800, commit 7e4c0a9)", 11800),
        ("llama-server", "0.1.0-dev (build 1, commit 7e4c0a9)", None),
        ("llama-server", "0.10434.0", 10434),
        ("llama-server", "0.0.0", None),
        ("xllamacpp", "2026.10.11549", 11549),
        ("xllamacpp", "2026.4.8672.1", 8672),
        ("xllamacpp", "0.2.14", None),
        ("llama-cpp-python", "0.3.36", None),
    ],
)
def test_the_build_number_in_a_version(kind: EngineKind, version: str, number: int | None) -> None:
    assert build_number(kind, version) == number


def test_a_known_build_is_its_day_and_others_lie_between() -> None:
    assert reckoned(10_434) == date(2026, 8, 14)
    assert reckoned(10_107) == date(2026, 7, 24)
    between = reckoned(10_800)
    assert between is not None
    assert date(2026, 8, 14) < between < date(2026, 10, 10)
    assert (reckoned(100), reckoned(99_999)) == (None, None)


@given(st.integers(2_793, 11_548))
def test_a_later_build_is_never_earlier(number: int) -> None:
    one, other = reckoned(number), reckoned(number + 1)
    assert one is not None
    assert other is not None
    assert one <= other


def test_what_a_package_says_of_itself_wins(tmp_path: Path) -> None:
    (tmp_path / "_version.py").write_text('version_json = \'\'\'\n{\n "date": "2026-09-01T23:27:58+0800"\n}')
    assert day_of("xllamacpp", "2026.10.11549", tmp_path) == Day("2026-09-01", about=False)
    assert day_of("xllamacpp", "2026.10.11549", tmp_path / "none") == Day("2026-10-10", about=True)
    assert day_of("llama-cpp-python", "0.3.36") == Day("2026-10-01", about=True)
    assert day_of("llama-server", "0.1.0-dev (build 1, commit 7e4c0a9)") is None
