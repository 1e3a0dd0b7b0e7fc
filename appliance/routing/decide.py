"""The decision of where a request goes. Pure: same features and view, same decision."""

from __future__ import annotations

from dataclasses import replace

from appliance.routing import refusals, rules
from appliance.routing.local import decide_local
from appliance.routing.types import Decision, Features, RemoteView, View


def decide(f: Features, v: View) -> Decision:
    """Say where the request goes, why, and what to answer when it can't go anywhere.

    The first rule that applies wins:

    1. Contradiction (`remote` asked of a local-only appliance, `local` of a remote-only one)
       -> reject.local_only.
    2. Only a remote may answer (asked for, or policy remote-only) -> remote.forced or remote.rule, else
       a rejection that names what stands in the way. Never local.
    3. The model isn't served here -> remote.not_local, else a rejection.
    4. The prompt is longer than a local slot -> remote.context (only to a context known to be larger), else
       reject.context.
    5. The engine is down -> remote.engine_down, else reject.unavailable.
    6. The machine is critically hot -> remote.thermal, else reject.thermal.
    7. On battery with `governor.battery` = `remote`, or `saver` for batch work -> remote.battery. What may
       not leave is answered here, by the rules below. Unknown power is no battery.
    8. Batch work waits first, since heat slows the machine or soon may -> remote.thermal unless the local
       side is known to finish sooner; else by the rules below, and it waits for its turn.
    9. The engine is loading, or the model is cold -> remote.loading unless the local side is known to finish
       sooner, load included; else wait for it in the bounded queue.
    10. The queue is full -> remote.queue, else reject.queue_full.
    11. The local side is too slow (wait over max_wait, first token later than the goal and than the remote's,
        or under `fastest` a later finish) and isn't known to finish sooner -> remote.queue, remote.faster, or
        remote.thermal when only the heat factor tipped it. Under heat also when prefill or decode of an
        interactive request miss their goals, even if nobody knows how fast the remote is.
    12. Local: local.pinned when asked for, local.ok with a free slot, else local.queued.

    "-> remote.x" always means: to the first remote that is up, has the model and the room, and only if no
    rule keeps the request here (`rules.barrier`).
    """
    made = _contradiction(f, v) or _only_remote(f, v) or _not_served(f, v)
    if made is None and v.local is not None:
        made = decide_local(f, v, rules.seen_by(f, v.local))
    assert made is not None, "_not_served answers for a missing local side"
    return _with_predictions(made, f, v)


def _with_predictions(made: Decision, f: Features, v: View) -> Decision:
    able = rules.able(v, rules.tokens_needed(f))
    local = rules.seen_by(f, v.local) if v.local else None
    return replace(
        made,
        local_finish_s=rules.finish_s(local, rules.heat(local)) if local else None,
        remote_finish_s=able.finish_s if able else None,
    )


def _contradiction(f: Features, v: View) -> Decision | None:
    """Rule 1."""
    if f.wish == "remote" and v.policy == "local-only":
        return refusals.reject(
            "reject.local_only", "The request asked for the remote side, but this appliance is local-only."
        )
    if f.wish == "local" and v.policy == "remote-only":
        return refusals.reject(
            "reject.local_only", "The request may not leave this machine, but this appliance is remote-only."
        )
    return None


def _only_remote(f: Features, v: View) -> Decision | None:
    """Rule 2."""
    if f.wish != "remote" and v.policy != "remote-only":
        return None
    why = "The request asked for the remote side" if f.wish == "remote" else "The policy is remote-only"
    kept = refusals.kept(f, v, why)
    if kept:
        return kept
    remote = _only_way(f, v)
    if remote:
        return refusals.to_remote("remote.forced" if f.wish == "remote" else "remote.rule", remote, why)
    return refusals.no_remote(f, v, why)


def _only_way(f: Features, v: View) -> RemoteView | None:
    """A remote for a request that nobody else can answer.

    Without one that holds prompt and wanted output, the first that holds the prompt: it judges the rest.
    """
    return rules.able(v, rules.tokens_needed(f)) or rules.able(v, rules.prompt_and_one(f))


def _not_served(f: Features, v: View) -> Decision | None:
    """Rule 3."""
    if v.local is not None and v.local.serves:
        return None
    why = f"{f.model} isn't served on this machine"
    if not any(r.has_model for r in v.remotes):
        return refusals.reject("reject.not_found", f"{why}, and no remote is mapped to it.")
    kept = refusals.kept(f, v, why)
    if kept:
        return kept
    remote = _only_way(f, v)
    return refusals.to_remote("remote.not_local", remote, why) if remote else refusals.no_remote(f, v, why)
