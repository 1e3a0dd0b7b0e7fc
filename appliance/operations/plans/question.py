"""The body of a plan request, checked: the command line and HTTP send the same one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from appliance.errors import UsageError
from appliance.operations.files import file_or_name
from appliance.operations.plans.described import Described, described
from appliance.operations.plans.wishes import Wishes
from appliance.planning.values import KV_TYPES
from appliance.text import clean_line

_LONGEST = 4_096
_REMOTE = ("hf:", "http:", "https:")
_NUMBERS = {
    "ctx": (256, 1 << 27),
    "parallel": (1, 256),
    "gpu_layers": (0, 10_000),
    "ubatch": (1, 65_536),
    "cpu_moe": (0, 10_000),
}
"""What each may be: a typing error in a number should not look like a machine that is too small."""
_WORDS: dict[str, Collection[str]] = {
    "kv": KV_TYPES,
    "split": ("layer", "row", "tensor"),
    "profile": ("chat", "docs", "batch"),
    "engine": ("auto", "llama-server", "xllamacpp", "llama-cpp-python"),
}
_FLAGS = ("what_if", "ask", "fetch_headers")


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be planned, on which machine, and how."""

    model: str
    wishes: Wishes
    machine: Described | None
    """None: this one."""
    what_if: bool = False
    ask: bool = True
    """False: by formula, no engine is asked."""
    fetch_headers: bool = False
    """Of a family's members that are not here, get the headers: some MiB each."""


def question_of(body: Mapping[str, Any]) -> Question:
    """Raises UsageError for a word that is not known, and for values of the wrong type or range."""
    known = {"model", "gpu", "ram", *_FLAGS, *(field.name for field in fields(Wishes))}
    for key in body:
        if key not in known:
            raise UsageError(
                f"{clean_line(str(key), 40)} is nothing that a plan can be asked for.",
                hint=f"There is {', '.join(sorted(known))}.",
            )
    model = _text(body, "model")
    if not model or not model.strip():
        raise UsageError("No model was named.", hint="`appliance models list` shows what there is.")
    numbers: dict[str, Any] = {name: _number(body, name) for name in _NUMBERS}
    words: dict[str, Any] = {name: _word(body, name) for name in _WORDS}
    wishes = Wishes(**numbers, **words, draft=_text(body, "draft"))
    asked = body.get("ask")
    return Question(
        model.strip(),
        wishes,
        described(_texts(body, "gpu"), _text(body, "ram")),
        what_if=_flag(body, "what_if"),
        ask=True if asked is None else _flag(body, "ask"),
        fetch_headers=_flag(body, "fetch_headers"),
    )


def path_of(question: Question) -> Path | None:
    """The file, where one file of this computer is all that is planned. Raises UsageError for a bad path."""
    if question.wishes.draft is not None or question.model.lower().startswith(_REMOTE):
        return None
    return file_or_name(question.model)


def wishes_of(body: Mapping[str, Any]) -> Wishes:
    """The wishes alone, for a load. Raises UsageError as `question_of` does."""
    return question_of({"model": "x", **{f.name: body.get(f.name) for f in fields(Wishes)}}).wishes


def _number(body: Mapping[str, Any], name: str) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    low, high = _NUMBERS[name]
    if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
        return value
    raise UsageError(f"{name} is not a whole number from {low} to {high}.")


def _word(body: Mapping[str, Any], name: str) -> str | None:
    value = body.get(name)
    if value is None or (isinstance(value, str) and value in _WORDS[name]):
        return value
    raise UsageError(f"{name} is not one of {', '.join(_WORDS[name])}.")


def _text(body: Mapping[str, Any], name: str) -> str | None:
    value = body.get(name)
    if value is None or (isinstance(value, str) and len(value) <= _LONGEST and "\0" not in value):
        return value
    raise UsageError(f"{name} is no text of at most {_LONGEST} characters.")


def _texts(body: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = body.get(name)
    if value is None:
        return ()
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list | tuple) or not all(isinstance(one, str) for one in found):
        raise UsageError(f"{name} is no list of texts.")
    return tuple(one[:_LONGEST] for one in found)


def _flag(body: Mapping[str, Any], name: str) -> bool:
    value = body.get(name)
    if value is None or isinstance(value, bool):
        return bool(value)
    raise UsageError(f"{name} is neither true nor false.")
