"""The facts that the decision is made of: may it leave, who could serve it, how long would it take here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from appliance.routing.types import Features, LocalView, RemoteView, View

SERVING = frozenset({"ready", "busy"})
COLD = "cold"
LOADING = frozenset({"starting", "loading", COLD})


@dataclass(frozen=True, slots=True)
class Bar:
    """The first rule that keeps a request on this machine."""

    kind: Literal["wish", "policy", "key", "fields"]
    text: str


def barrier(f: Features, v: View) -> Bar | None:
    """Why the request may not leave the machine; None when it may."""
    if v.policy == "local-only":
        return Bar("policy", "the policy is local-only")
    if f.wish == "local":
        return Bar("wish", "the request asked for the local side")
    if f.keyless_unknown_user:
        return Bar("key", "callers without a key whose user is unknown are never sent to a remote")
    if f.local_fields:
        names = ", ".join(f.local_fields)
        return Bar("fields", f"only the local engine honours {names}")
    return None


def tokens_needed(f: Features) -> int | None:
    """Prompt and wanted output; a remote refuses more than its max_model_len of both together."""
    return None if f.prompt_tokens is None else f.prompt_tokens + max(f.max_tokens or 1, 1)


def fits(limit: int | None, tokens: int | None) -> bool:
    """Whether so many tokens go into the limit; unknown on either side is no reason to say no."""
    return limit is None or tokens is None or tokens <= limit


def prompt_and_one(f: Features) -> int | None:
    """The least that a context must hold: the prompt and one token of output."""
    return None if f.prompt_tokens is None else f.prompt_tokens + 1


def able(v: View, tokens: int | None) -> RemoteView | None:
    """The first remote that is up, has the model and takes so many tokens. Ignores whether it may leave."""
    usable = (r for r in v.remotes if r.up and r.has_model)
    return next((r for r in usable if fits(r.max_model_len, tokens)), None)


def candidate(f: Features, v: View) -> RemoteView | None:
    """The remote that may and can answer instead of the local side."""
    return None if barrier(f, v) else able(v, tokens_needed(f))


def bigger(f: Features, v: View, than: int) -> RemoteView | None:
    """The first usable remote whose context is known to be larger and to hold this request."""
    need = tokens_needed(f) or 0
    usable = (r for r in v.remotes if r.up and r.has_model)
    return next((r for r in usable if (r.max_model_len or 0) >= max(need, than + 1)), None)


def waits_first(f: Features, local: LocalView) -> bool:
    """The machine is spared, and this request is of the kind that waits meanwhile."""
    return f.lane == "batch" and local.eases != ""


def seen_by(f: Features, local: LocalView) -> LocalView:
    """The local side as this request meets it.

    While batch work waits first, a free slot is none for a batch request until its turn comes, and batch
    requests that wait are not ahead of an interactive one.
    """
    if not local.eases:
        return local
    if f.lane != "batch":
        return replace(local, waiting=max(0, local.waiting - local.batch_waiting))
    turn = width(local) if local.batch_wait_s == 0 else min(width(local), local.running)
    return replace(local, predicted_wait_s=local.batch_wait_s, at_once=turn)


def width(local: LocalView) -> int:
    """So many requests run at once."""
    return local.slots if local.at_once is None else min(local.slots, local.at_once)


def heat(local: LocalView) -> float:
    """Speed now over usual speed: the measured factor while throttled, else 1. Between 0.01 and 1."""
    return min(1.0, max(0.01, local.factor)) if local.thermal == "throttled" else 1.0


def wait_s(local: LocalView, factor: float) -> float | None:
    """Seconds until a slot is free; 0 when one is and nobody waits; unknown stays unknown.

    Loading takes as long as the disk gives, whatever the heat.
    """
    if local.state in LOADING:
        queue = _queue_s(local, factor)
        return None if local.load_s is None or queue is None else local.load_s + queue
    return _queue_s(local, factor)


def state_words(local: LocalView) -> str:
    """What the local side is at the moment, as the end of a sentence."""
    return "the model is not loaded" if local.state == COLD else f"the local engine is {local.state}"


def _queue_s(local: LocalView, factor: float) -> float | None:
    if local.predicted_wait_s is not None:
        return local.predicted_wait_s / factor
    return 0.0 if has_free_slot(local) else None


def work_s(local: LocalView, factor: float) -> float | None:
    """Seconds from a slot to the complete answer."""
    if local.prefill_s is None or local.decode_s is None:
        return None
    return (local.prefill_s + local.decode_s) / factor


def finish_s(local: LocalView, factor: float) -> float | None:
    """Seconds until the answer is complete here; None when a part of it is unknown."""
    wait, work = wait_s(local, factor), work_s(local, factor)
    return None if wait is None or work is None else wait + work


def local_sooner(local: LocalView, remote: RemoteView, factor: float) -> bool:
    """The local side is known to finish no later than the remote."""
    finish = finish_s(local, factor)
    return finish is not None and remote.finish_s is not None and finish <= remote.finish_s


def has_free_slot(local: LocalView) -> bool:
    """A new request would start at once."""
    return local.waiting == 0 and local.running < width(local)


def is_full(local: LocalView) -> bool:
    """The queue takes nobody else."""
    return local.waiting >= local.max_queue and (local.waiting > 0 or local.running >= width(local))
