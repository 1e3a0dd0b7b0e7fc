"""Rules 4 to 12 of the decision: the model is served here, so the local side comes first."""

from __future__ import annotations

from appliance.routing import refusals, rules, spared
from appliance.routing.types import Decision, Features, LocalView, RemoteView, View
from appliance.text import clean_line
from appliance.units import duration


def decide_local(f: Features, v: View, local: LocalView) -> Decision:
    """Rules 4 to 12 of `decide`, for a model that is served here and a request that may be answered here.

    `local` is the local side as this request meets it (`rules.seen_by`).
    """
    return (
        _too_long(f, v, local)
        or _down(f, v, local)
        or _hot(f, v, local)
        or spared.on_battery(f, v)
        or spared.eased(f, v, local)
        or _loading(f, v, local)
        or _full(f, v, local)
        or _slow(f, v, local)
        or _local(f, v, local)
    )


def _too_long(f: Features, v: View, local: LocalView) -> Decision | None:
    """Rule 4."""
    if local.ctx is None or rules.fits(local.ctx, rules.prompt_and_one(f)):
        return None
    why = f"The prompt of {f.prompt_tokens} tokens doesn't fit the local context of {local.ctx}"
    bar = rules.barrier(f, v)
    remote = None if bar else rules.bigger(f, v, local.ctx)
    if remote:
        return refusals.to_remote(
            "remote.context", remote, f"{why}, but the {remote.max_model_len} of {remote.name}"
        )
    rest = bar.text if bar else "no remote that is up is known to have a larger one"
    return refusals.reject("reject.context", f"{why}, and {rest}.")


def _down(f: Features, v: View, local: LocalView) -> Decision | None:
    """Rule 5. A state that nobody here knows counts as down."""
    if local.state in rules.SERVING | rules.LOADING:
        return None
    told = clean_line(local.detail, 500).rstrip(".")
    why = f"The local engine is {local.state}" + (f" ({told})" if told else "")
    # With a reason it has given up for good: it comes back when somebody has done something.
    given_up = refusals.GIVEN_UP_RETRY_S if local.retry_s is None else local.retry_s
    retry = given_up if told and local.state == "failed" else refusals.DOWN_RETRY_S
    return refusals.leave_or_reject(
        f, v, why, leave="remote.engine_down", stay="reject.unavailable", retry_s=retry
    )


def _hot(f: Features, v: View, local: LocalView) -> Decision | None:
    """Rule 6."""
    if local.thermal != "critical":
        return None
    why = clean_line(local.danger, 300) or "The machine is critically hot"
    retry = refusals.HOT_RETRY_S if local.danger_s is None else local.danger_s
    return refusals.leave_or_reject(
        f, v, f"{why}, so nothing new is generated here",
        leave="remote.thermal", stay="reject.thermal", retry_s=retry,
    )  # fmt: skip


def _loading(f: Features, v: View, local: LocalView) -> Decision | None:
    """Rule 9."""
    if local.state not in rules.LOADING:
        return None
    remote, words = rules.candidate(f, v), rules.state_words(local)
    if remote and not rules.local_sooner(local, remote, rules.heat(local)):
        return refusals.to_remote("remote.loading", remote, words[0].upper() + words[1:])
    stays = _stays(f, v)
    return _full(f, v, local) or _wait_here(f, f"{words}, and {stays}")


def _full(f: Features, v: View, local: LocalView) -> Decision | None:
    """Rule 10."""
    if not rules.is_full(local):
        return None
    wait = rules.wait_s(local, rules.heat(local))
    if wait is None:
        wait = _unknown_wait_retry_s(f, local)
    return refusals.leave_or_reject(
        f, v, f"The queue is full: {local.waiting} of {local.max_queue} wait",
        leave="remote.queue", stay="reject.queue_full", retry_s=wait,
    )  # fmt: skip


def _unknown_wait_retry_s(f: Features, local: LocalView) -> float:
    if rules.waits_first(f, local):
        return refusals.EASED_RETRY_S
    return refusals.LOADING_RETRY_S if local.state in rules.LOADING else refusals.UNKNOWN_WAIT_RETRY_S


def _slow(f: Features, v: View, local: LocalView) -> Decision | None:
    """Rule 11."""
    remote = rules.candidate(f, v)
    if remote is None:
        return None
    usual = too_slow(f, v, local, remote, 1.0)
    if usual:
        return refusals.to_remote(usual[0], remote, usual[1])
    factor = rules.heat(local)
    if factor >= 1:
        return None
    hot = too_slow(f, v, local, remote, factor)
    text = hot[1] if hot else _under_goals(f, v, local, remote, factor)
    if text is None:
        return None
    return refusals.to_remote(
        "remote.thermal", remote, f"{text}, since heat holds the machine at {factor:.0%} of its speed"
    )


def _under_goals(f: Features, v: View, local: LocalView, remote: RemoteView, factor: float) -> str | None:
    """That heat holds the local side under a goal of an interactive request, in words.

    The local speed is measured, and measured to be bad: so the remote's may be unknown, but it must not be
    known to be no better. The wait is left out: max_wait judges it.
    """
    if f.lane != "interactive" or rules.local_sooner(local, remote, factor):
        return None
    prompt = None if local.prefill_s is None else local.prefill_s / factor
    if prompt is not None and prompt > v.goal_ttft_s and remote.ttft_s is None:
        return f"The prompt alone takes {duration(prompt)}, over the goal of {duration(v.goal_ttft_s)}"
    speed, goal = local.decode_per_s, v.goal_decode_per_s
    if f.kind == "embedding" or speed is None or goal is None or speed * factor >= goal:
        return None
    return f"A reply comes at {speed * factor:.1f} tokens/s, under the goal of {goal:g}"


def too_slow(
    f: Features, v: View, local: LocalView, remote: RemoteView, factor: float
) -> tuple[str, str] | None:
    """Whether the remote should answer since the local side is too slow at this speed: code and text.

    An unknown wait counts as at least nothing when it is held against a limit, and never as proof that the
    local side is sooner: so a queue that grows can't turn a remote answer into a local one.
    """
    if rules.local_sooner(local, remote, factor):
        return None
    wait = rules.wait_s(local, factor) or 0.0
    if wait > v.max_wait_s:
        return "remote.queue", (
            f"The predicted wait of {duration(wait)} is over the limit of {duration(v.max_wait_s)}"
        )
    if v.policy == "fastest":
        later = _later(local, remote, factor)
        if later:
            return "remote.faster", later
    return _first_token_late(f, v, local, remote, factor)


def _later(local: LocalView, remote: RemoteView, factor: float) -> str | None:
    """That the local side is predicted to finish after the remote, in words."""
    work = rules.work_s(local, factor)
    if work is None or remote.finish_s is None:
        return None
    finish = (rules.wait_s(local, factor) or 0.0) + work
    if finish <= remote.finish_s:
        return None
    return (
        f"The local side is predicted to finish in {duration(finish)}, "
        f"{remote.name} in {duration(remote.finish_s)}"
    )


def _first_token_late(
    f: Features, v: View, local: LocalView, remote: RemoteView, factor: float
) -> tuple[str, str] | None:
    """The goal for the first token: interactive requests only, and the remote must be known to be sooner."""
    prompt_alone = (local.prefill_s or 0.0) / factor
    first = (rules.wait_s(local, factor) or 0.0) + prompt_alone
    if f.lane != "interactive" or remote.ttft_s is None:
        return None
    if first <= v.goal_ttft_s or first <= remote.ttft_s:
        return None
    reason = "remote.faster" if prompt_alone > v.goal_ttft_s else "remote.queue"
    return reason, (
        f"The first token is predicted after {duration(first)}, over the goal of {duration(v.goal_ttft_s)}"
    )


def _local(f: Features, v: View, local: LocalView) -> Decision:
    """Rule 12."""
    if rules.waits_first(f, local) and not rules.has_free_slot(local):
        return _wait_here(f, f"batch work waits first, since {local.eases}")
    slots = rules.width(local)
    if rules.has_free_slot(local):
        text = f"{local.running} of {slots} slots are busy"
        if f.wish == "local":
            return Decision("local", "local.pinned", f"The request asked for the local side; {text}.")
        return Decision("local", "local.ok", f"The local engine takes it at once; {text}.")
    wait = rules.wait_s(local, rules.heat(local))
    text = f"{local.running} of {slots} slots are busy and {local.waiting} wait"
    text += "; the wait is unknown" if wait is None else f"; the predicted wait is {duration(wait)}"
    if wait is not None and wait > v.max_wait_s and f.wish != "local":
        text += f", over the limit of {duration(v.max_wait_s)}, but {_stays(f, v)}"
    return _wait_here(f, text)


def _stays(f: Features, v: View) -> str:
    """Why a request stays although its wait is over the limit."""
    if rules.candidate(f, v):
        return "the local side is still predicted to finish sooner"
    return refusals.obstacle(f, v)


def _wait_here(f: Features, text: str) -> Decision:
    if f.wish == "local":
        return Decision("local", "local.pinned", f"The request asked for the local side, and waits: {text}.")
    return Decision("local", "local.queued", f"It waits here: {text}.")
