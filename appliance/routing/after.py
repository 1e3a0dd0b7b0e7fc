"""Second thoughts about a request that has no token yet: it has waited too long, or a side failed."""

from __future__ import annotations

from dataclasses import replace

from appliance.routing import refusals, rules
from appliance.routing.decide import decide
from appliance.routing.types import Decision, Features, Side, View
from appliance.text import clean_line
from appliance.units import duration

FAILED_NOW = "it has just failed"
"""Detail of a remote that is down for this request only."""


def after_wait(f: Features, v: View, waited_s: float) -> Decision:
    """Decide again for a request that has waited in the local queue for `waited_s`.

    It already has its place, so a full queue can't throw it out. It leaves when the view says so, or when it
    has waited for longer than max_wait and a remote may and can take it; else it goes on waiting.
    """
    if v.local is None:
        return decide(f, v)
    placed = replace(v, local=replace(v.local, max_queue=max(v.local.max_queue, v.local.waiting + 1)))
    made = decide(f, placed)
    remote = rules.candidate(f, v)
    if made.target != "local" or waited_s <= v.max_wait_s or remote is None:
        return made
    local = rules.seen_by(f, v.local)
    factor = rules.heat(local)
    if rules.local_sooner(local, remote, factor):
        return made
    # At usual speed the queue would have moved on within the limit.
    tipped = waited_s * factor <= v.max_wait_s
    text = f"It has waited {duration(waited_s)}, over the limit of {duration(v.max_wait_s)}"
    moved = refusals.to_remote("remote.thermal" if tipped else "remote.queue", remote, text)
    return replace(moved, local_finish_s=made.local_finish_s, remote_finish_s=made.remote_finish_s)


def after_failure(f: Features, v: View, failed: Side, cause: str, *, remote: str | None = None) -> Decision:
    """Decide again after a side failed before the first token. Never call it after the first token.

    `cause` is for people. `remote` names the failed one, so that the next may be tried; without it no remote
    is tried again. The failed side is never the answer: local -> remote.engine_down; remote -> local.fallback
    or the next remote; else reject.unavailable, or what keeps the local side from taking it (heat, a full
    queue). What a wish, a policy or a key forbids stays forbidden.
    """
    cause = clean_line(cause, 300)
    if failed == "local":
        lost = replace(v, local=replace(v.local, state="failed") if v.local else None)
        made, who = decide(f, lost), "The local engine"
    else:
        left = tuple(
            replace(r, up=False, detail=FAILED_NOW) if remote is None or r.name == remote else r
            for r in v.remotes
        )
        made, who = decide(f, replace(v, remotes=left)), remote or "The remote"
    told = f"{who} failed before the first token ({cause}). {made.detail}"
    if made.target == "local":
        return replace(made, reason="local.fallback", detail=told)
    if made.target == "remote":
        asked = made.reason in ("remote.forced", "remote.rule")
        reason = made.reason if failed == "remote" or asked else "remote.engine_down"
        return replace(made, reason=reason, detail=told)
    after = made.retry_after_s
    stays = failed == "remote" and made.reason in ("reject.thermal", "reject.queue_full")
    return refusals.reject(
        made.reason if stays else "reject.unavailable",
        told,
        retry_s=refusals.DOWN_RETRY_S if after is None else after,
    )
