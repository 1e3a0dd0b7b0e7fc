"""One meaning for the many ways in which servers say what went wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from appliance.text import clean_line

FailureKind = Literal["context", "key", "model", "overload", "server", "bad_request"]

_CONTEXT = re.compile(
    r"maximum context length|exceeds? the (available )?context size|max_model_len|context_length_exceeded",
    re.IGNORECASE,
)
_CONTEXT_CODES = frozenset({"context_length_exceeded", "exceed_context_size_error"})
_CONTEXT_PARAMS = frozenset({"input_tokens", "input_text"})
_CONTEXT_STATUSES = frozenset({400, 413, 422})
_MODEL_CODES = frozenset({"model_not_found", "NotFoundError"})
_SECRETS = re.compile(r"(?i)\bbearer\s+\S+|\bsk-[\w*.-]{4,}")
_LIMIT = 500


class Failure(NamedTuple):
    """What went wrong, and the remote's words, cleaned and without keys."""

    kind: FailureKind
    message: str


def normalise_error(status: int, body: bytes | str | Mapping[str, Any] | None) -> Failure:
    """Read an error answer, or with status 200 the error event of a stream.

    `error` may be an object (vLLM, llama-server, OpenAI), a string (vLLM's 401) or absent (a proxy's page).
    Kinds: context (too long; the same target would refuse again), key, model, overload, server, bad_request.
    """
    found = _error(body)
    message = _SECRETS.sub("[key]", clean_line(_message(found, body), _LIMIT))
    if status == 200:
        status = _int(found.get("code")) or (400 if _says_too_long(found, message) else 500)
    return Failure(_kind(status, found, message), message or f"HTTP {status} without a message")


def _says_too_long(error: Mapping[str, Any], message: str) -> bool:
    """The three dialects: OpenAI's code, llama-server's type, vLLM's param or sentence."""
    if _words(error) & _CONTEXT_CODES or error.get("param") in _CONTEXT_PARAMS:
        return True
    return _CONTEXT.search(message) is not None


def _words(error: Mapping[str, Any]) -> set[str]:
    return {str(error.get(name)) for name in ("code", "type")}


def _kind(status: int, error: Mapping[str, Any], message: str) -> FailureKind:
    if status in _CONTEXT_STATUSES and _says_too_long(error, message):
        return "context"
    if status in (401, 403):
        return "key"
    if _words(error) & _MODEL_CODES or (status == 404 and error.get("param") == "model"):
        return "model"
    if status in (429, 503, 529):
        return "overload"
    return "server" if status >= 500 else "bad_request"


def _error(body: bytes | str | Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The error object, or one made of the string that stands in its place."""
    if isinstance(body, (bytes, str)):
        try:
            body = json.loads(body)
        except (ValueError, RecursionError):
            return {}
    if not isinstance(body, Mapping):
        return {}
    error = body.get("error")
    if isinstance(error, Mapping):
        return error
    if isinstance(error, str):
        return {"message": error}
    return body if "message" in body else {"message": body.get("detail")} if "detail" in body else {}


def _message(error: Mapping[str, Any], body: bytes | str | Mapping[str, Any] | None) -> str:
    message = error.get("message")
    if isinstance(message, str):
        return message
    if message is not None:
        return json.dumps(message)
    if not isinstance(body, (bytes, str)):
        return ""
    text = body.decode("utf-8", errors="replace") if isinstance(body, bytes) else body
    if text.lstrip().startswith("<"):
        title = re.search(r"<title>(.*?)</title>", text[:10_000], re.IGNORECASE | re.DOTALL)
        return f"a web page: {title[1]}" if title else "a web page"
    return text[: 4 * _LIMIT]


def _int(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
