"""Leaving or refusing: the two ways to not answer here, each with what stands in the way in words."""

from __future__ import annotations

import math

from appliance.routing.codes import RETRY_MAX_S, RETRY_MIN_S, STATUS
from appliance.routing.rules import barrier, candidate, tokens_needed
from appliance.routing.types import Decision, Features, RemoteView, View

DOWN_RETRY_S = 10
GIVEN_UP_RETRY_S = 60
LOADING_RETRY_S = 5
HOT_RETRY_S = 60
"""The governor's dwell: it must be cool for so long before it generates again."""
UNKNOWN_WAIT_RETRY_S = 10
EASED_RETRY_S = 60
"""Batch work that waits first starts at most one request in each dwell."""


def reject(reason: str, detail: str, *, retry_s: float | None = None) -> Decision:
    """A rejection with its status, and with Retry-After where the status needs one."""
    status = STATUS[reason]
    after = None
    if status in (429, 503):
        # A broken number (infinite, NaN) must not become a broken header.
        asked = retry_s if retry_s is not None and math.isfinite(retry_s) else RETRY_MAX_S
        after = min(RETRY_MAX_S, max(RETRY_MIN_S, math.ceil(asked)))
    return Decision("reject", reason, detail, status=status, retry_after_s=after)


def to_remote(reason: str, remote: RemoteView, detail: str) -> Decision:
    """Off to this remote."""
    return Decision("remote", reason, f"{detail}; {remote.name} takes it.", remote=remote.name)


def leave_or_reject(
    f: Features, v: View, why: str, *, leave: str, stay: str, retry_s: float | None
) -> Decision:
    """To the first remote that may and can take it (code `leave`), else the rejection `stay`."""
    remote = candidate(f, v)
    if remote:
        return to_remote(leave, remote, why)
    return reject(stay, f"{why}, and {obstacle(f, v)}.", retry_s=retry_s)


def kept(f: Features, v: View, why: str) -> Decision | None:
    """The rejection of a request that only a remote could answer and that may not leave."""
    bar = barrier(f, v)
    if bar is None:
        return None
    detail = f"{why}, but {bar.text}."
    if bar.kind == "key":
        return reject("reject.key", detail)
    if bar.kind == "fields":
        return reject("reject.unsupported", detail)
    return reject("reject.local_only", detail)


def no_remote(f: Features, v: View, why: str) -> Decision:
    """The rejection when only a remote may answer and none can."""
    usable = [r for r in v.remotes if r.up and r.has_model]
    if usable:
        widest = max(r.max_model_len or 0 for r in usable)
        return reject(
            "reject.context",
            f"{why}, but its {f.prompt_tokens} tokens don't fit the largest remote context of {widest}.",
        )
    return reject("reject.unavailable", f"{why}, but {absence(f, v)}.", retry_s=DOWN_RETRY_S)


def absence(f: Features, v: View) -> str:
    """Why no remote can answer, in words."""
    if not v.remotes:
        return "no remote is configured"
    having = [r for r in v.remotes if r.has_model]
    if not having:
        return f"no remote is mapped to {f.model}"
    return "; ".join(f"{r.name} is down" + (f" ({r.detail})" if r.detail else "") for r in having if not r.up)


def obstacle(f: Features, v: View) -> str:
    """Why no remote takes it: a rule, or the state of the remotes."""
    bar = barrier(f, v)
    if bar:
        return bar.text
    if any(r.up and r.has_model for r in v.remotes):
        return f"{tokens_needed(f)} tokens don't fit any remote's context"
    return absence(f, v)
