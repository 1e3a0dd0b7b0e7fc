"""Tolerant reading of JSON documents into frozen dataclasses.

A client may talk to a daemon that is a little older or newer. So a missing, null or odd value becomes None
(or an empty collection), an unknown key is ignored, and nothing here raises. Text is cleaned here, once,
since everything above shows it on a terminal.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self, TypeVar

from appliance.text import clean_line

T = TypeVar("T", bound="Document")


def text(value: object) -> str | None:
    """A cleaned line, or None when it is not text."""
    return clean_line(value) if isinstance(value, str) else None


def number(value: object) -> float | None:
    """A finite number, or None. A boolean is not a number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        as_float = float(value)
    except OverflowError:
        return None
    return as_float if math.isfinite(as_float) else None


def whole(value: object) -> int | None:
    """A whole number (a float is cut), or None."""
    as_number = number(value)
    return None if as_number is None else int(as_number)


def flag(value: object) -> bool | None:
    """A boolean, or None."""
    return value if isinstance(value, bool) else None


def texts(value: object) -> tuple[str, ...]:
    """The texts of a list; other elements are dropped."""
    items = value if isinstance(value, list) else []
    return tuple(line for line in map(text, items) if line is not None)


def mapping(value: object) -> Mapping[str, Any]:
    """The object itself, or an empty one."""
    return value if isinstance(value, dict) else {}


def rows(kind: type[T]) -> Callable[[object], tuple[T, ...]]:
    """A reader of a list of `kind`; elements that are no objects are dropped."""

    def read(value: object) -> tuple[T, ...]:
        items = value if isinstance(value, list) else []
        return tuple(kind.parse(item) for item in items if isinstance(item, dict))

    return read


def maybe(kind: type[T]) -> Callable[[object], T | None]:
    """A reader of one `kind`, None when it is null or no object."""

    def read(value: object) -> T | None:
        return kind.parse(value) if isinstance(value, dict) else None

    return read


_READERS: Mapping[str, Callable[[object], object]] = {
    "str": lambda value: text(value) or "",
    "str | None": text,
    "int | None": whole,
    "float | None": number,
    "bool | None": flag,
    "tuple[str, ...]": texts,
    "tuple[str, ...] | None": lambda value: texts(value) if isinstance(value, list) else None,
}


@dataclasses.dataclass(frozen=True, slots=True)
class Document:
    """Base of the wire documents: each field is read from the key of its name.

    `READERS` names the fields that are not read by their type alone.
    """

    READERS: ClassVar[Mapping[str, Callable[[object], object]]] = {}

    @classmethod
    def parse(cls, document: object) -> Self:
        """Read a JSON object; anything missing or odd becomes None or empty."""
        source = mapping(document)
        values = {
            f.name: (cls.READERS.get(f.name) or _READERS[str(f.type)])(source.get(f.name))
            for f in dataclasses.fields(cls)
        }
        return cls(**values)
