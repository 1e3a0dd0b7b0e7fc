"""Text for terminals as values: spans with a tone, lines of spans, and cropping by cells, not characters."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, TypeAlias

from rich.cells import cell_len

Tone = Literal["plain", "muted", "strong", "ok", "warn", "bad", "accent"]
"""What a span means; colour only repeats what the words say."""


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of text with one tone."""

    text: str
    tone: Tone = "plain"


Line: TypeAlias = tuple[Span, ...]

_COMBINING_MAX = 2


def safe(text: str) -> str:
    """`text` with a width that terminals agree on: no joiners, variation selectors or stacks of marks.

    Control characters are gone already (`appliance.text`); what is left of them becomes a space, so that a
    line stays a line.
    """
    if text.isascii() and text.isprintable():
        return text
    kept: list[str] = []
    combining = 0
    for char in unicodedata.normalize("NFC", text):
        category = unicodedata.category(char)
        if category in ("Mn", "Me"):
            combining += 1
            if combining <= _COMBINING_MAX and kept and not 0xFE00 <= ord(char) <= 0xFE0F:
                kept.append(char)
            continue
        combining = 0
        if category in ("Cc", "Zl", "Zp"):
            kept.append(" ")
        elif category not in ("Cf", "Cs", "Cn", "Co"):
            kept.append(char)
    return "".join(kept)


def cells(text: str) -> int:
    """The columns that `text` takes."""
    return cell_len(text)


def crop(text: str, width: int) -> str:
    """At most `width` columns of `text`; what was cut is marked by `…`."""
    text = safe(text)
    if cells(text) <= width:
        return text
    return _cut(text, width) if width > 0 else ""


def _cut(text: str, width: int) -> str:
    """What fits into `width` - 1 columns, and `…`."""
    kept: list[str] = []
    used = 0
    for char in text:
        used += cells(char)
        if used > width - 1:
            break
        kept.append(char)
    return "".join(kept) + "…"


def fit(text: str, width: int, align: Literal["left", "right"] = "left") -> str:
    """Exactly `width` columns."""
    text = crop(text, width)
    gap = " " * (width - cells(text))
    return gap + text if align == "right" else text + gap


def line(*parts: Span | str) -> Line:
    """A line of spans; plain text becomes a plain span."""
    return tuple(part if isinstance(part, Span) else Span(part) for part in parts if part)


def joined(parts: Iterable[Line], between: str = " · ") -> Line:
    """Lines one after the other, with a muted mark between them."""
    spans: list[Span] = []
    for part in parts:
        if spans and part:
            spans.append(Span(between, "muted"))
        spans.extend(part)
    return tuple(spans)


def joined_within(parts: Iterable[Line], width: int) -> Line:
    """Like `joined`, without the last parts that do not fit. The first one always stays."""
    kept = [part for part in parts if part]
    while len(kept) > 1 and width_of(joined(kept)) > width:
        kept.pop()
    return joined(kept)


def width_of(spans: Line) -> int:
    """The columns that a line takes."""
    return sum(cells(safe(span.text)) for span in spans)


def plain(spans: Line) -> str:
    """The text of a line."""
    return "".join(span.text for span in spans)


def fit_line(spans: Line, width: int) -> Line:
    """Exactly `width` columns of a line."""
    if width <= 0:
        return ()
    out: list[Span] = []
    left = width
    whole = width_of(spans) <= width
    for span in spans:
        text = safe(span.text)
        if not whole and cells(text) >= left:
            text = _cut(text, left)
            out.append(Span(text, span.tone))
            left -= cells(text)
            break
        out.append(Span(text, span.tone))
        left -= cells(text)
    return (*out, Span(" " * left)) if left else tuple(out)


def between(left: Line, right: Line, width: int) -> Line:
    """`left` and `right` at the two ends of `width` columns; `left` gives way."""
    right = right if width_of(right) <= width else fit_line(right, width)
    room = max(0, width - width_of(right))
    return (*fit_line(left, room), *right)


def wrap(text: str, width: int, most: int) -> tuple[str, ...]:
    """`text` in at most `most` rows of `width` columns, broken at spaces; the rest is cut with `…`."""
    rows: list[str] = []
    current = ""
    words = safe(text).split()
    for position, word in enumerate(words):
        longer = f"{current} {word}" if current else word
        if cells(longer) <= width or not current:
            current = longer
            continue
        if len(rows) == most - 1:
            return (*rows, crop(" ".join((current, *words[position:])), width))
        rows.append(crop(current, width))
        current = word
    return (*rows, crop(current, width)) if current else tuple(rows)


def wrap_line(spans: Line, width: int, *, most: int | None = None, indent: int = 0) -> tuple[Line, ...]:
    """A line in rows of at most `width` columns, broken at spaces where it can be; tones stay.

    Rows after the first begin with `indent` blanks. Of more than `most` rows the last one is cut with `…`.
    """
    chars = [(char, span.tone) for span in spans for char in safe(span.text)]
    if width <= indent or not chars:
        return (fit_line(spans, width),) if chars and width > 0 else (spans,)
    rows: list[Line] = []
    start = 0
    while start < len(chars):
        pad = indent if rows else 0
        if most is not None and len(rows) == most - 1:
            rows.append(_crop_line(_spans(chars[start:], pad), width))
            break
        end = _row_end(chars, start, width - pad)
        rows.append(_spans(chars[start:end], pad))
        start = end
        while start < len(chars) and chars[start][0] == " ":
            start += 1
    return tuple(rows)


def _row_end(chars: list[tuple[str, Tone]], start: int, room: int) -> int:
    """Where the row that begins at `start` ends: at a space, or inside a word longer than the row."""
    used, at, space, word = 0, start, None, False
    while at < len(chars) and (used := used + cells(chars[at][0])) <= room:
        if chars[at][0] != " ":
            word = True
        elif word:
            space = at
        at += 1
    if at == len(chars) or chars[at][0] == " " or space is None:
        return max(at, start + 1)
    return space


def _spans(chars: list[tuple[str, Tone]], pad: int) -> Line:
    out: list[Span] = [Span(" " * pad)] if pad else []
    for tone, group in groupby(chars, key=lambda pair: pair[1]):
        out.append(Span("".join(char for char, _ in group), tone))
    return tuple(out)


def _crop_line(spans: Line, width: int) -> Line:
    return fit_line(spans, width) if width_of(spans) > width else spans
