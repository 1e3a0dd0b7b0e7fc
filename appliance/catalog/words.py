"""What is wrong with a value of an entry, in words: the patterns of the forms are no reading for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_FORMS = {
    "id": "lower-case letters, digits and . _ - (at most 96, beginning with a letter or digit)",
    "family": "lower-case letters, digits and . _ - (at most 96, beginning with a letter or digit)",
    "quant": "letters, digits and . _ - (at most 32, beginning with a letter or digit), like Q4_K_M",
    "sha256": "64 hex digits",
    "revision": "a whole commit, which has 40 hex digits; branches and tags move",
    "repo": "OWNER/NAME of letters, digits and . _ -",
    "url": "http(s)://HOST/PATH without spaces",
    "path": "a whole path: it begins with /, ~ or a drive",
    "version": "one exact version, like 1.2.0",
    "pin_host": "a host, perhaps with :PORT",
}
"""The last part of a key -> what stands there."""


def reason(problem: Mapping[str, Any]) -> str:
    """One problem as pydantic lists it, as a sentence without its full stop."""
    kind, location, said = problem["type"], problem["loc"], str(problem["msg"])
    if kind == "extra_forbidden":
        return "There is no such key"
    if kind == "string_pattern_mismatch":
        return f"It has to be {_FORMS.get(str(location[-1]), 'written in another way')}"
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return "Its `kind` has to be hf, url, wheel or file"
    return said.removeprefix("Value error, ")
