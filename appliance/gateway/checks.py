"""The shape of every other field, checked before any side sees it (`messages.py` has the chat's own).

An engine takes much of this silently as something else: `"stop": 5` as no stop at all, `"max_tokens": 0` as
one token. What it can't read it may write to its log, prompt included.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from appliance.gateway.badfield import refuse
from appliance.routing import Kind
from appliance.text import clean_line

_INT32 = 2**31 - 1
_FORMATS = ("text", "json_object", "json_schema")


@dataclass(frozen=True, slots=True)
class _Range:
    """Allowed numbers, both ends included."""

    low: float
    high: float = math.inf
    whole: bool = False

    def holds(self, value: object) -> bool:
        if isinstance(value, bool) or not isinstance(value, int if self.whole else (int, float)):
            return False
        try:
            finite = math.isfinite(float(value))  # 1e400 reads as infinity, which is no JSON for the engine
        except OverflowError:
            return False
        return finite and self.low <= value <= self.high

    def __str__(self) -> str:
        kind = "a whole number" if self.whole else "a number"
        if self.high in (math.inf, _INT32, 2**64 - 1):
            return f"{kind} from {self.low:g}" if self.low > -_INT32 else kind
        return f"{kind} from {self.low:g} to {self.high:g}"


_NUMBERS: Mapping[str, _Range] = {
    "n": _Range(1, _INT32, whole=True),
    "max_tokens": _Range(1, _INT32, whole=True),
    "max_completion_tokens": _Range(1, _INT32, whole=True),
    "n_predict": _Range(-2, _INT32, whole=True),
    "temperature": _Range(0),
    "top_p": _Range(0, 1),
    "min_p": _Range(0, 1),
    "top_k": _Range(-1, _INT32, whole=True),
    "presence_penalty": _Range(-2, 2),
    "frequency_penalty": _Range(-2, 2),
    "repeat_penalty": _Range(0),
    "repetition_penalty": _Range(0),
    "top_logprobs": _Range(0, 20, whole=True),
    "seed": _Range(-(2**63), 2**64 - 1, whole=True),
    "dimensions": _Range(1, _INT32, whole=True),
}
_SWITCHES = ("stream", "parallel_tool_calls", "cache_prompt", "ignore_eos")
_TEXTS = ("grammar", "suffix", "user")
_OBJECTS = ("response_format", "stream_options", "chat_template_kwargs", "json_schema")


def check_texts(body: Mapping[str, Any]) -> None:
    """No lone surrogate anywhere: UTF-8 can't carry one, and the engine would log the prompt around it.

    Raises BadField.
    """
    for name, value in body.items():
        param = clean_line(name, 80)
        try:
            json.dumps({name: value}, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            refuse(f"`{param}` holds half of a surrogate pair, which is no character.", param)
        except RecursionError:
            refuse(f"`{param}` is nested too deeply.", param)


def check_fields(body: Mapping[str, Any], kind: Kind) -> None:
    """Types and ranges; null is the same as absent. Raises BadField."""
    for name, allowed in _NUMBERS.items():
        if body.get(name) is not None and not allowed.holds(body[name]):
            refuse(f"`{name}` must be {allowed}.", name)
    for names, wanted, text in (
        (_SWITCHES, bool, "true or false"), (_TEXTS, str, "a text"), (_OBJECTS, Mapping, "an object")
    ):  # fmt: skip
        for name in names:
            if body.get(name) is not None and not isinstance(body[name], wanted):
                refuse(f"`{name}` must be {text}.", name)
    _check_stop(body.get("stop"))
    _check_logit_bias(body.get("logit_bias"))
    _check_logprobs(body.get("logprobs"), kind)
    options = body.get("stream_options") or {}
    if options.get("include_usage") is not None and not isinstance(options["include_usage"], bool):
        refuse("`stream_options.include_usage` must be true or false.", "stream_options")
    _check_format(body.get("response_format"))


def check_prompt(value: object, name: str) -> None:
    """A text, token ids, or a list of such. Raises BadField."""
    parts = value if isinstance(value, list) else [value]
    nested = [item for part in parts if isinstance(part, list) for item in part or [None]]
    whole = isinstance(value, str) or (isinstance(value, list) and bool(value))
    known = all(isinstance(part, (str, list)) or _is_token(part) for part in parts)
    if not whole or not known or not all(_is_token(item) for item in nested):
        refuse(f"`{name}` must be a text, a list of texts, token ids, or lists of token ids.", name)


def _is_token(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _INT32


def _check_stop(stop: object) -> None:
    many = stop if isinstance(stop, list) else [] if stop is None else [stop]
    if not all(isinstance(word, str) for word in many):
        refuse("`stop` must be a text or a list of texts.", "stop")


def _check_logit_bias(bias: object) -> None:
    """OpenAI's object; llama.cpp's list of pairs and its `false` (never) are known, too."""
    if bias is None:
        return
    values: list[object] = [None]
    if isinstance(bias, Mapping):
        values = list(bias.values())
    elif isinstance(bias, list):
        values = [pair[1] if isinstance(pair, list) and len(pair) == 2 else None for pair in bias]
    if not all(value is False or (isinstance(value, (int, float)) and value is not True) for value in values):
        refuse("`logit_bias` must be an object of tokens and numbers.", "logit_bias")


def _check_logprobs(wanted: object, kind: Kind) -> None:
    if wanted is None or isinstance(wanted, bool):
        return
    if kind == "chat" or not _Range(0, 20, whole=True).holds(wanted):
        text = "true or false" if kind == "chat" else "a whole number from 0 to 20"
        refuse(f"`logprobs` must be {text}.", "logprobs")


def _check_format(wanted: Mapping[str, Any] | None) -> None:
    if wanted is None:
        return
    if wanted.get("type") not in _FORMATS:
        refuse(f"`response_format.type` must be one of {', '.join(_FORMATS)}.", "response_format")
    schema = wanted.get("json_schema")
    if schema is not None and not (
        isinstance(schema, Mapping) and isinstance(schema.get("schema", {}), Mapping)
    ):
        refuse("`response_format.json_schema` must be an object with a schema.", "response_format")
