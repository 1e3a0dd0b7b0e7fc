"""Which fields of the timeline may leave the machine: none that hold words of a client or a remote. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_REQUEST = frozenset(
    {
        "at", "kind", "request_id", "served_model", "route", "reason", "lane", "path", "status", "tokens_in",
        "tokens_out", "queue_ms", "ttft_ms", "tokens_per_second", "total_ms", "degraded", "thermal", "power",
        "streams", "plan",
    }
)  # fmt: skip
"""Not the name that the client asked for: it is the client's own text."""
_EVENT = frozenset({"at", "kind", "event", "ref", "text", "detail", "number"})
_DECISION = frozenset(
    {"at", "kind", "request_id", "moment", "model", "target", "reason", "remote", "features", "view", "given"}
)
_FEATURES = frozenset(
    {"model", "wish", "lane", "kind", "prompt_tokens", "max_tokens", "keyless_unknown_user", "local_fields"}
)
_GIVEN = frozenset({"waited_s", "failed", "remote"})
_PATH = re.compile(r"(?:/batch)?/v1/[a-z]+(?:/completions)?")
_NAME = re.compile(r"[\w.:/@+-]{1,200}")


def cleaned(line: Mapping[str, Any]) -> dict[str, Any] | None:
    """The line without what others wrote; None for a kind that is not known."""
    kind = line.get("kind")
    if kind == "sample":
        return {
            name: value
            for name, value in line.items()
            if name in ("kind", "device", "state") or _number(value)
        }
    if kind == "event":
        return {name: value for name, value in line.items() if name in _EVENT}
    if kind == "request":
        found = {name: value for name, value in line.items() if name in _REQUEST}
        if not _PATH.fullmatch(str(found.get("path", ""))):
            found.pop("path", None)
        return found
    return _decision(line) if kind == "decision" else None


def _decision(line: Mapping[str, Any]) -> dict[str, Any]:
    """Without the sentences, which quote a remote or an engine; the replay makes them anew from the rest."""
    found = {name: value for name, value in line.items() if name in _DECISION}
    features = {name: value for name, value in (found.get("features") or {}).items() if name in _FEATURES}
    for holder in (found, features):
        if not _NAME.fullmatch(str(holder.get("model", ""))):
            holder["model"] = "[another name]"
    fields = features.get("local_fields") or ()
    if fields:
        features["local_fields"] = [name for name in fields if re.fullmatch(r"\w{1,40}", str(name))]
    given = {name: value for name, value in (found.get("given") or {}).items() if name in _GIVEN}
    return found | {"features": features, "view": _without_details(found.get("view") or {}), "given": given}


def _without_details(view: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(view)
    if isinstance(found.get("local"), Mapping):
        found["local"] = {**found["local"], "detail": ""}
    remotes = [one for one in found.get("remotes") or () if isinstance(one, Mapping)]
    if remotes:
        found["remotes"] = [{**one, "detail": ""} for one in remotes]
    return found


def _number(value: object) -> bool:
    return isinstance(value, (bool, int, float))
