"""Lines, bars, trend lines and the ASCII mode: columns always add up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui import glyphs
from tui.frame import PanelView, framed
from tui.graphs import Spark, bar
from tui.lines import (
    Span,
    between,
    cells,
    crop,
    fit,
    fit_line,
    joined,
    joined_within,
    line,
    plain,
    safe,
    width_of,
    wrap,
    wrap_line,
)

TEXTS = st.text(st.characters(codec="utf-8"), max_size=60)
WIDTHS = st.integers(0, 50)


@given(TEXTS, WIDTHS)
def test_fit_gives_exactly_the_width(text: str, width: int) -> None:
    assert cells(fit(text, width)) == width
    assert cells(fit(text, width, "right")) == width


@given(st.lists(TEXTS, max_size=5), WIDTHS)
def test_fit_line_gives_exactly_the_width(texts: list[str], width: int) -> None:
    assert width_of(fit_line(line(*texts), width)) == width


@given(st.lists(TEXTS, max_size=6), st.lists(TEXTS, max_size=2), TEXTS, st.integers(6, 60), st.integers(2, 8))
def test_a_frame_is_a_rectangle(
    rows: list[str], scope: list[str], title: str, width: int, height: int
) -> None:
    view = PanelView(title, tuple(line(row) for row in rows), line(*scope))
    drawn = framed(view, width, height)
    assert len(drawn) == height
    assert [width_of(row) for row in drawn] == [width] * height


def test_a_cut_is_marked_also_between_spans() -> None:
    assert crop("abcdef", 4) == "abc…"
    assert plain(fit_line(line("abc", "def"), 4)) == "abc…"
    assert plain(fit_line(line("abcd", "ef"), 4)) == "abc…"
    assert plain(fit_line(line("日本語"), 4)) == "日… "


def test_text_with_unclear_width_is_made_plain() -> None:
    assert safe("e\u0301") == "é"
    assert safe("a" + "\u0300" * 50).count("\u0300") <= 2
    assert safe("👩\u200d💻\ufe0f") == "👩💻"
    assert safe("a\x1b[2J\nb\u202ec") == "a [2J bc"


def test_both_ends_of_a_row() -> None:
    assert plain(between(line("left"), line("right"), 12)) == "left   right"
    assert plain(between(line("a long left side"), line("right"), 12)) == "a long…right"
    assert width_of(between((), line("far too long"), 5)) == 5


def test_parts_that_do_not_fit_are_left_out() -> None:
    parts = [line("one"), (), line("two"), line("three")]
    assert plain(joined(parts)) == "one · two · three"
    assert plain(joined_within(parts, 10)) == "one · two"
    assert plain(joined_within(parts, 1)) == "one"


def test_wrapping_keeps_words_and_marks_the_cut() -> None:
    assert wrap("one two three", 7, 3) == ("one two", "three")
    assert wrap("one two three four", 7, 2) == ("one two", "three …")
    assert wrap("x" * 20, 7, 2) == ("xxxxxx…",)
    assert wrap("", 7, 2) == ()


def test_a_steady_value_is_a_steady_line() -> None:
    spark = Spark(0, 100)
    assert spark.draw([95, 96, 97, 95], 4) == "▇▇▇▇"
    assert spark.draw([50, 50], 4) == "  ▄▄"
    assert spark.draw([3], 1) == "▁"


def test_unknown_is_a_gap_and_outliers_stay_in_the_scale() -> None:
    assert Spark(0, 100).draw([0, None, 100, 900, -5, float("nan")], 6) == "▁ ▇▇▁ "
    assert Spark(5, 5).draw([5], 1) == "▁"
    assert Spark(0, 1).draw([1, 1], 0) == ""


@pytest.mark.parametrize(
    ("parts", "total", "expected"),
    [
        ([(5, "█"), (2, "▓")], 10, "█████▓▓░░░"),
        ([(0.01, "█")], 10, "█░░░░░░░░░"),
        ([(10, "█")], 10, "██████████"),
        ([(20, "█"), (5, "▓")], 10, "██████████"),
        ([(0, "█")], 10, "░░░░░░░░░░"),
        ([(3, "█")], 0, "░░░░░░░░░░"),
        ([(3, "█")], 5e-324, "██████████"),
    ],
)
def test_bars_show_shares(parts: list[tuple[float, str]], total: float, expected: str) -> None:
    assert bar(parts, total, 10) == expected


@given(st.lists(st.tuples(st.floats(0, 1e12), st.just("█")), max_size=4), st.floats(0, 1e12), WIDTHS)
def test_a_bar_never_leaves_its_width(parts: list[tuple[float, str]], total: float, width: int) -> None:
    assert len(bar(parts, total, width)) == width


@given(TEXTS)
def test_ascii_mode_keeps_columns(text: str) -> None:
    text = safe(text)
    translated = glyphs.to_ascii(text)
    assert translated.isascii()
    assert cells(translated) == cells(text)


def test_each_state_has_glyph_and_word() -> None:
    for state in ("ready", "loading", "failed", "warm", "stopping", "a state of tomorrow"):
        glyph, _, word = glyphs.mark(state).text.partition(" ")
        assert glyph
        assert word == state
    assert glyphs.mark(None) == glyphs.mark("unknown") == Span("n/a", "muted")


@pytest.mark.parametrize(
    ("text", "width", "most", "expected"),
    [
        ("one two three", 20, None, ("one two three",)),
        ("one two three", 7, None, ("one two", "  three")),
        ("abcdefghij", 4, None, ("abcd", "  ef", "  gh", "  ij")),
        ("  a bcdef", 6, None, ("  a", "  bcde", "  f")),
        ("one two three four", 7, 2, ("one two", "  thre…")),
        ("日本語 日本語", 7, None, ("日本語", "  日本", "  語")),
        ("", 9, None, ("",)),
    ],
)
def test_a_line_is_wrapped_at_spaces(
    text: str, width: int, most: int | None, expected: tuple[str, ...]
) -> None:
    rows = wrap_line((Span(text),), width, most=most, indent=2)
    assert tuple(map(plain, rows)) == expected
    assert all(width_of(row) <= width for row in rows)


def test_wrapping_keeps_the_tones() -> None:
    rows = wrap_line((Span("! code", "warn"), Span(" and more", "muted")), 8)
    assert rows == ((Span("! code", "warn"),), (Span("and more", "muted"),))
