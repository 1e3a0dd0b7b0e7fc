"""Takes keys, tokens and names of this user out of what a bundle says. Pure.

It is the second line of defence: what may hold text of a request never comes this far (`lines.py`,
`rows.py`). A few words too many may go; that costs a reader little.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from appliance.text import clean_line

HIDDEN = "[hidden]"
LONGEST = 4_000
"""Characters of one text."""
_SHORTEST_SECRET = 6
_TELLING = 6
_COMMON = frozenset(
    {"root", "user", "users", "admin", "home", "localhost", "ubuntu", "runner", "appliance", "nobody", "test"}
)
"""Names that say nothing about a person, and that other words hold."""

_URL_SECRET = re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^\s/@\"']+@", re.I)
_URL_TAIL = re.compile(r"(\b[a-z][a-z0-9+.-]*://[^\s?#\"']+)[?#][^\s\"')\]}>]*", re.I)
_BEARER = re.compile(r"\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}", re.I)
_NAMED = re.compile(
    r"\b([\w-]*(?:api[_-]?key|token|secret|passw(?:or)?d|authorization|credential)s?)(\s*[:=]\s*)(\"[^\"]*\"|\S+)",
    re.I,
)
_SHAPES = re.compile(
    r"\b(?:sk|pk|rk|hf|ghp|gho|ghs|github_pat|glpat|xox[abpr]|AKIA|ASIA|AIza|npm|nvapi|gsk)[-_]?[A-Za-z0-9_-]{12,}"
    r"|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9._-]+"
)
"""Keys of well-known services, and JSON web tokens."""
_HOMES = re.compile(r"(?:/home/|/Users/|[A-Za-z]:\\{1,2}Users\\{1,2})[^/\\\s\"':]+")


@dataclass(frozen=True, slots=True)
class Cleaner:
    """Knows what must not leave this machine."""

    home: str = ""
    names: tuple[str, ...] = ()
    """The user's and the machine's."""
    secrets: tuple[str, ...] = ()

    @staticmethod
    def of(home: str, names: Iterable[str], secrets: Iterable[str]) -> Cleaner:
        """The longest first, so that no part of one stays."""
        telling = {name for name in names if len(name) > 2 and name.lower() not in _COMMON}
        hidden = {secret for secret in secrets if len(secret) >= _SHORTEST_SECRET}
        return Cleaner(
            home if len(home) > 1 else "",
            tuple(sorted(telling, key=len, reverse=True)),
            tuple(sorted(hidden, key=len, reverse=True)),
        )

    def text(self, text: str) -> str:
        """One text on one line."""
        text = clean_line(text, LONGEST)
        text = _URL_TAIL.sub(r"\1", _URL_SECRET.sub(r"\1", text))
        for secret in self.secrets:
            text = text.replace(secret, HIDDEN)
        text = _SHAPES.sub(HIDDEN, _BEARER.sub(rf"\1 {HIDDEN}", text))
        text = _NAMED.sub(rf"\1\2{HIDDEN}", text)
        if self.home:
            text = re.sub(rf"{re.escape(self.home)}(?=[/\\\s\"':,.;)\]]|$)", "~", text)
        text = _HOMES.sub("~", text)
        for name in self.names:
            # a short name is part of too many words
            edges = ("", "") if len(name) >= _TELLING else ("(?<![A-Za-z0-9])", "(?![A-Za-z0-9])")
            text = re.sub(edges[0] + re.escape(name) + edges[1], "[name]", text, flags=re.I)
        return text

    def all(self, value: Any) -> Any:
        """Every text in a document."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self.all(inner) for key, inner in value.items()}
        if isinstance(value, (list, tuple, set, frozenset)):
            return [self.all(inner) for inner in value]
        return value
