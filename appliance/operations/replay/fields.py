"""The fields of one line, read one by one: what is wrong is said in words, with what to write instead."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from typing import Any

from appliance.text import clean_line

_SHOWN = 60


class BadLine(Exception):
    """One line that can't be used: what is wrong with it, and what to write instead."""

    def __init__(self, wrong: str, instead: str) -> None:
        super().__init__(wrong)
        self.wrong = wrong
        self.instead = instead


class Fields:
    """One object. Each getter gives None for a field that is absent or null, and notes that it was read."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self._raw = raw
        self._read: set[str] = set()

    @property
    def filled(self) -> bool:
        """There is anything in it."""
        return bool(self._raw)

    def get(self, name: str) -> Any:
        """As it stands there."""
        self._read.add(name)
        return self._raw.get(name)

    def number(self, name: str, least: float | None = None, most: float | None = None) -> float | None:
        """A finite number within the limits."""
        value = self.get(name)
        return None if value is None else _number(name, value, least, most)

    def needed(self, name: str, least: float | None = None, most: float | None = None) -> float:
        """The same for a number that must be there."""
        found = self.number(name, least, most)
        if found is None:
            raise BadLine(f"`{name}` is missing", f'Add it: "{name}": {_example(least)}.')
        return found

    def whole(self, name: str, least: int = 0) -> int | None:
        """A whole number."""
        value = self.number(name, least)
        if value is not None and value != int(value):
            raise BadLine(f"`{name}` is {value:g}", f'Write a whole number: "{name}": {round(value)}.')
        return None if value is None else int(value)

    def text(self, name: str, longest: int = 200) -> str | None:
        """A text that is not empty, cleaned."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, str) or not clean_line(value):
            raise BadLine(f"`{name}` is {_shown(value)}", f'Write a text: "{name}": "...".')
        return clean_line(value, longest)

    def needed_text(self, name: str, example: str) -> str:
        """The same for a text that must be there."""
        found = self.text(name)
        if found is None:
            raise BadLine(f"`{name}` is missing", f'Add it: "{name}": "{example}".')
        return found

    def flag(self, name: str) -> bool | None:
        """true or false."""
        value = self.get(name)
        if value is None or isinstance(value, bool):
            return value
        raise BadLine(f"`{name}` is {_shown(value)}", f'Write "{name}": true or "{name}": false.')

    def one_of(self, name: str, words: Iterable[str]) -> str | None:
        """One of these words."""
        value, known = self.get(name), tuple(words)
        if value is None or (isinstance(value, str) and value in known):
            return value
        raise BadLine(f"`{name}` is {_shown(value)}", f"Write one of: {', '.join(known)}.")

    def texts(self, name: str) -> tuple[str, ...] | None:
        """A list of texts."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise BadLine(f"`{name}` is {_shown(value)}", f'Write a list of texts: "{name}": ["..."].')
        return tuple(clean_line(one, 200) for one in value)

    def words(self, name: str) -> str | None:
        """A text that may be empty, cleaned."""
        return "" if self.get(name) == "" else self.text(name, 2_000)

    def parts(self, name: str) -> tuple[Fields, ...]:
        """A list of objects."""
        value = self.get(name)
        if not isinstance(value, list) or not all(isinstance(one, Mapping) for one in value):
            raise BadLine(f"`{name}` is {_shown(value)}", f'Write a list of objects: "{name}": [{{...}}].')
        return tuple(Fields(one) for one in value)

    def part(self, name: str) -> Fields | None:
        """An object inside the line."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise BadLine(f"`{name}` is {_shown(value)}", f'Write an object: "{name}": {{...}}.')
        return Fields(value)

    def all_read(self, besides: Iterable[str] = ()) -> None:
        """Raises BadLine for a field that nobody asked for: a misspelt one must not be passed over."""
        known = self._read | set(besides)
        for name in self._raw:
            if name not in known:
                close = difflib.get_close_matches(name, sorted(known), 1)
                instead = (
                    f"Did you mean `{close[0]}`?" if close else f"Known here: {', '.join(sorted(known))}."
                )
                raise BadLine(f"the field {_shown(name)} is unknown", instead)


def _number(name: str, value: Any, least: float | None, most: float | None) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise BadLine(f"`{name}` is {_shown(value)}", f'Write a number: "{name}": {_example(least)}.')
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if not math.isfinite(found):
        raise BadLine(f"`{name}` is no finite number", "Leave the field out where the value is unknown.")
    if (least is not None and found < least) or (most is not None and found > most):
        limits = f"at least {least:g}" if most is None else f"from {least or 0:g} to {most:g}"
        raise BadLine(f"`{name}` is {found:g}", f"Write a number that is {limits}.")
    return found


def _example(least: float | None) -> str:
    return "1" if least is None else f"{least + 1:g}"


def _shown(value: object) -> str:
    text = clean_line(repr(value), _SHOWN)
    return f"{text} ({type(value).__name__})" if isinstance(value, (list, dict)) else text
