"""A plain reply put together from a stream, equal to what the engine itself would have answered.

Texts are joined, tool calls are joined by index, log probability lists are appended; of everything else
(usage, timings, system_fingerprint, a vendor's own fields) the last value that is not null stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_TEXTS = ("content", "reasoning_content", "reasoning", "refusal")
_OBJECTS = {"chat.completion.chunk": "chat.completion"}


class ReplyTooLong(ValueError):
    """The reply has more bytes than allowed."""


class Assembler:
    """Feed it the JSON of each chunk, in order; `reply` is the plain reply."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._top: dict[str, Any] = {}
        self._choices: dict[int, _Choice] = {}

    def add(self, data: Mapping[str, Any], n_bytes: int) -> None:
        """One more chunk of `n_bytes` on the wire. Raises ReplyTooLong."""
        self._size += n_bytes
        if self._size > self._limit:
            raise ReplyTooLong(f"the reply has more than {self._limit} bytes")
        for name, value in data.items():
            if name == "choices":
                for choice in value or ():
                    index = choice.get("index", 0)
                    self._choices.setdefault(index, _Choice()).add(choice)
            elif value is not None or name not in self._top:
                self._top[name] = value

    def reply(self) -> dict[str, Any]:
        """The reply so far."""
        top = dict(self._top)
        if top.get("object") in _OBJECTS:
            top["object"] = _OBJECTS[top["object"]]
        choices = [choice.plain(index) for index, choice in sorted(self._choices.items())]
        return {"choices": choices, **top}


class _Choice:
    """One choice while it grows."""

    def __init__(self) -> None:
        self.rest: dict[str, Any] = {}
        self.message: dict[str, Any] = {}
        self.pieces: dict[str, list[str]] = {}
        self.calls: dict[int, dict[str, Any]] = {}
        self.logprobs: dict[str, Any] | None = None
        self.chat = False

    def add(self, choice: Mapping[str, Any]) -> None:
        for name, value in choice.items():
            if name == "delta":
                self.chat = True
                self._add_delta(value or {})
            elif name == "text":
                self.pieces.setdefault("text", []).append(value or "")
            elif name == "logprobs":
                self._add_logprobs(value)
            elif name != "index" and (value is not None or name not in self.rest):
                self.rest[name] = value

    def _add_delta(self, delta: Mapping[str, Any]) -> None:
        for name, value in delta.items():
            if name in _TEXTS:
                if value is not None:
                    self.pieces.setdefault(name, []).append(value)
            elif name == "tool_calls":
                for position, call in enumerate(value or ()):
                    _join_call(self.calls.setdefault(call.get("index", position), {}), call)
            elif name == "function_call" and isinstance(value, Mapping):
                _join_call(self.message.setdefault(name, {}), {"function": value}, flat=True)
            elif value is not None:
                self.message[name] = value

    def _add_logprobs(self, value: Mapping[str, Any] | None) -> None:
        if value is None:
            return
        known = self.logprobs if self.logprobs is not None else {}
        for name, part in value.items():
            if isinstance(part, list):
                if known.get(name) is None:
                    known[name] = []
                known[name].extend(part)
            elif part is not None or name not in known:
                known[name] = part
        self.logprobs = known

    def plain(self, index: int) -> dict[str, Any]:
        made: dict[str, Any] = {"index": index}
        if self.chat:
            made["message"] = self._message()
        else:
            made["text"] = "".join(self.pieces.get("text", ()))
        if self.logprobs is not None or not self.chat:
            made["logprobs"] = self.logprobs
        return {**made, **self.rest}

    def _message(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": self.message.get("role", "assistant"), "content": None}
        message |= {name: "".join(pieces) for name, pieces in self.pieces.items()}
        message |= {name: value for name, value in self.message.items() if name != "role"}
        if self.calls:
            message["tool_calls"] = [call for _, call in sorted(self.calls.items())]
            message["content"] = message["content"] or None
        elif message["content"] is None and "refusal" not in self.pieces:
            message["content"] = ""
        return message


def _join_call(known: dict[str, Any], piece: Mapping[str, Any], *, flat: bool = False) -> None:
    """Adds a piece of a tool call: names come once, arguments in parts."""
    for name, value in piece.items():
        if name == "function" and isinstance(value, Mapping):
            function = known if flat else known.setdefault("function", {})
            for key, part in value.items():
                if key == "arguments":
                    function[key] = function.get(key, "") + (part or "")
                elif part is not None:
                    function[key] = part
        elif name != "index" and value is not None:
            known[name] = value
