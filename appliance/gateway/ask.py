"""An inference request as the gateway understands it: parsed and checked, not yet in any queue."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, cast

from appliance.errors import Rejected
from appliance.gateway import filter as fields
from appliance.gateway.access import Caller
from appliance.gateway.badfield import BadField
from appliance.gateway.ports import Served
from appliance.routing import Features, Kind, Lane, Wish

_BYTES_PER_TOKEN = 6
"""On the long side of what tokenizers do with English, so that an estimate refuses nothing that fits: the
engine itself says when a prompt is really too long."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One request. `body` holds the prompt: it goes upstream and nowhere else."""

    path: str
    """The upstream path, `/v1/chat/completions`, also for `/batch/v1/...`."""
    kind: Kind
    served: Served
    features: Features
    body: dict[str, Any] = field(repr=False)
    stream: bool
    wants_usage: bool
    """The client asked for the usage chunk at the end of its stream."""
    choices: int
    """How many choices must finish."""
    n: int = 1
    """Choices of each prompt."""
    no_store: bool = False
    """The prompt may be written nowhere."""


def parse(raw: bytes) -> dict[str, Any]:
    """The body as an object. Raises Rejected (400)."""
    try:
        body = json.loads(raw, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        cause = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise _bad("The body is not valid JSON.", cause) from None
    if not isinstance(body, dict):
        raise _bad("The body must be a JSON object.")
    return body


def model_name(body: Mapping[str, Any]) -> str | None:
    """The `model` of the body; None when absent. Raises Rejected (400)."""
    name = body.get("model")
    if name is not None and not isinstance(name, str):
        raise BadField("`model` must be a string.", "model")
    return name or None


def understand(
    path: str,
    kind: Kind,
    body: Mapping[str, Any],
    served: Served,
    caller: Caller,
    *,
    wish: Wish,
    lane: Lane,
    no_store: bool = False,
) -> Ask:
    """Everything that is known before routing. Raises Rejected for what nobody can answer."""
    clean = fields.common(body, kind, served.use)
    options = clean.get("stream_options")
    features = Features(
        model=served.id,
        wish=wish,
        lane=lane,
        kind=kind,
        prompt_tokens=estimate_tokens(clean),
        max_tokens=_max_tokens(clean),
        keyless_unknown_user=caller.unknown_user,
        local_fields=fields.local_fields(clean),
    )
    return Ask(
        path=path,
        kind=kind,
        served=served,
        features=features,
        body=clean,
        stream=kind != "embedding" and clean.get("stream") is True,
        wants_usage=isinstance(options, Mapping) and options.get("include_usage") is True,
        n=clean.get("n") or 1,
        no_store=no_store,
        choices=(clean.get("n") or 1) * (_prompts(clean) if kind == "completion" else 1),
    )


def as_stream(body: Mapping[str, Any]) -> dict[str, Any]:
    """The body that asks for a stream with usage: an engine notices a lost client only in a stream."""
    options = body.get("stream_options")
    kept = dict(options) if isinstance(options, Mapping) else {}
    return {**body, "stream": True, "stream_options": {**kept, "include_usage": True}}


def wish_of(header: str | None) -> Wish:
    """`X-Appliance-Route`. Raises Rejected (400): a wish that is misspelt must not leave the machine."""
    word = (header or "auto").strip().lower()
    if word not in ("auto", "local", "remote"):
        raise _bad("X-Appliance-Route must be auto, local or remote.")
    return cast("Wish", word)


def lane_of(header: str | None, batch_path: bool) -> Lane:
    """`X-Appliance-Priority`, or the lane of the path. Raises Rejected (400)."""
    word = (header or ("batch" if batch_path else "interactive")).strip().lower()
    if word not in ("interactive", "batch"):
        raise _bad("X-Appliance-Priority must be interactive or batch.")
    return cast("Lane", word)


def no_store_of(headers: Sequence[str]) -> bool:
    """`Cache-Control` says `no-store`: nothing of the request may be written to disk."""
    return any(part.strip().lower() == "no-store" for line in headers for part in line.split(","))


def estimate_tokens(body: Mapping[str, Any]) -> int | None:
    """A careful estimate of the prompt, the longest of several: exact for token ids, else from the bytes of
    its text.

    None when there is no text to count. Pictures are not counted.
    """
    value = body.get("prompt", body.get("input"))
    if isinstance(value, list) and not all(isinstance(part, int) for part in value):
        each = [_count([part]) if isinstance(part, str) else _tokens(part) for part in value]
        return max((count for count in each if count is not None), default=None)
    return _tokens(value) if isinstance(value, list) else _count(_texts(body))


def _tokens(ids: object) -> int | None:
    return len(ids) if isinstance(ids, list) and ids else None


def _count(texts: list[str]) -> int | None:
    n_bytes = sum(len(text.encode("utf-8", "replace")) for text in texts)
    return -(-n_bytes // _BYTES_PER_TOKEN) if n_bytes else None


def _texts(body: Mapping[str, Any]) -> list[str]:
    texts: list[object] = [body.get("prompt"), body.get("input")]
    for message in body.get("messages") or ():
        content = message.get("content")
        parts = content if isinstance(content, list) else [content]
        texts += [part.get("text") if isinstance(part, Mapping) else part for part in parts]
    return [text for text in texts if isinstance(text, str)]


def _prompts(body: Mapping[str, Any]) -> int:
    """How many prompts a completion request holds: a list of texts or of token lists is many."""
    prompt = body.get("prompt")
    many = isinstance(prompt, list) and bool(prompt) and all(isinstance(p, (str, list)) for p in prompt)
    return len(prompt) if many and isinstance(prompt, list) else 1


def _max_tokens(body: Mapping[str, Any]) -> int | None:
    for name in ("max_completion_tokens", "max_tokens", "n_predict"):
        value = body.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _bad(message: str, cause: str | None = None) -> Rejected:
    return Rejected(message, reason="reject.unsupported", http_status=400, cause=cause)
