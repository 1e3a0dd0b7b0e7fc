"""What holds for every request on every machine."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from appliance.routing import (
    REASONS,
    Decision,
    Features,
    LocalView,
    RemoteView,
    ThermalState,
    View,
    after_failure,
    after_wait,
    decide,
)

SECONDS = st.floats(0, 600)
MAYBE_SECONDS = st.none() | SECONDS
TOKENS = st.none() | st.integers(0, 50_000)
STATES = st.sampled_from(("absent", "cold", "starting", "loading", "ready", "busy", "stopping", "failed"))
HEAT: tuple[ThermalState, ...] = ("cool", "warm", "throttled", "critical")

features = st.builds(
    Features,
    model=st.just("m"),
    wish=st.sampled_from(("auto", "auto", "local", "remote")),
    lane=st.sampled_from(("interactive", "batch")),
    kind=st.sampled_from(("chat", "completion", "embedding")),
    prompt_tokens=TOKENS,
    max_tokens=TOKENS,
    keyless_unknown_user=st.booleans(),
    local_fields=st.sampled_from(((), (), ("grammar",))),
)
locals_ = st.builds(
    LocalView,
    state=STATES | st.sampled_from(("ready", "busy")),
    slots=st.integers(1, 4),
    running=st.integers(0, 4),
    waiting=st.integers(0, 10),
    max_queue=st.integers(0, 10),
    predicted_wait_s=MAYBE_SECONDS,
    ctx=TOKENS,
    thermal=st.sampled_from((*HEAT, "unknown")),
    factor=st.floats(0, 1.5),
    serves=st.sampled_from((True, True, False)),
    prefill_s=MAYBE_SECONDS,
    decode_s=MAYBE_SECONDS,
    decode_per_s=st.none() | st.floats(0.1, 200),
    eases=st.sampled_from(("", "heat slows the machine")),
    batch_waiting=st.integers(0, 10),
    batch_wait_s=MAYBE_SECONDS | st.just(0.0),
    at_once=st.sampled_from((None, 1)),
)
remote_lists = st.lists(
    st.builds(
        RemoteView,
        name=st.sampled_from(("a", "b", "c")),
        up=st.booleans(),
        has_model=st.booleans(),
        max_model_len=TOKENS,
        detail=st.just(""),
        ttft_s=MAYBE_SECONDS,
        finish_s=MAYBE_SECONDS,
    ),
    max_size=3,
    unique_by=lambda r: r.name,
).map(tuple)
views = st.builds(
    View,
    policy=st.sampled_from(("local-only", "local-first", "local-first", "fastest", "remote-only")),
    max_wait_s=st.floats(0, 60),
    goal_ttft_s=st.floats(0, 10),
    local=st.none() | locals_,
    remotes=remote_lists,
    goal_decode_per_s=st.none() | st.floats(1, 50),
    power=st.sampled_from(("ac", "battery", "battery", "unknown")),
    battery=st.sampled_from(("full", "saver", "remote")),
)


def every(f: Features, v: View, waited: float) -> list[Decision]:
    """All decisions that the gateway may ever get for this request on this view."""
    named = v.remotes[0].name if v.remotes else None
    return [
        decide(f, v),
        after_wait(f, v, waited),
        after_failure(f, v, "local", "x"),
        after_failure(f, v, "remote", "x"),
        after_failure(f, v, "remote", "x", remote=named),
    ]


@given(features, views, SECONDS)
def test_nothing_leaves_that_a_rule_keeps_here(f: Features, v: View, waited: float) -> None:
    kept = f.wish == "local" or v.policy == "local-only" or f.keyless_unknown_user or bool(f.local_fields)
    for made in every(f, v, waited):
        assert not (kept and made.target == "remote"), made


@given(features, views, SECONDS)
def test_a_remote_target_is_up_and_has_the_model_and_the_room(f: Features, v: View, waited: float) -> None:
    by_name = {r.name: r for r in v.remotes}
    for made in every(f, v, waited):
        if made.target != "remote":
            assert made.remote is None
            continue
        chosen = by_name[made.remote or ""]
        assert chosen.up
        assert chosen.has_model
        if f.prompt_tokens is not None and chosen.max_model_len is not None:
            assert f.prompt_tokens < chosen.max_model_len


@given(features, views, SECONDS)
def test_a_local_target_serves_the_model_and_is_not_down_hot_or_too_small(
    f: Features, v: View, waited: float
) -> None:
    for made in every(f, v, waited):
        if made.target != "local":
            continue
        assert v.local is not None
        assert v.local.serves
        assert v.local.state in {"ready", "busy", "starting", "loading", "cold"}
        assert v.local.thermal != "critical"
        assert v.policy != "remote-only"
        assert f.wish != "remote"
        if f.prompt_tokens is not None and v.local.ctx is not None:
            assert f.prompt_tokens < v.local.ctx


@given(features, views)
def test_the_failed_side_is_never_the_answer(f: Features, v: View) -> None:
    assert after_failure(f, v, "local", "x").target != "local"
    assert after_failure(f, v, "remote", "x").target != "remote"
    for remote in v.remotes:
        assert after_failure(f, v, "remote", "x", remote=remote.name).remote != remote.name


@given(features, views, SECONDS)
def test_reason_status_and_retry_after_agree(f: Features, v: View, waited: float) -> None:
    for made in every(f, v, waited):
        assert made.reason in REASONS
        assert made.reason.partition(".")[0] == made.target
        assert (made.status is not None) == (made.target == "reject")
        if made.status in (429, 503):
            assert made.retry_after_s is not None
            assert 1 <= made.retry_after_s <= 120
        else:
            assert made.retry_after_s is None


@given(features, views)
def test_without_a_full_queue_nobody_is_told_that_it_is(f: Features, v: View) -> None:
    room = v.local is not None and v.local.waiting < v.local.max_queue
    if room:
        assert decide(f, v).reason != "reject.queue_full"


@given(features, views, locals_, st.data())
def test_a_longer_queue_or_a_slower_machine_never_brings_a_request_back(
    f: Features, v: View, local: LocalView, data: st.DataObject
) -> None:
    """Worse in every measure at once: if the better view sends it away, so does the worse one."""
    hotter: ThermalState = "unknown"
    if local.thermal in HEAT:
        hotter = HEAT[data.draw(st.integers(HEAT.index(local.thermal), 3))]
    wait = local.predicted_wait_s
    worse = replace(
        local,
        running=local.running + data.draw(st.integers(0, 3)),
        waiting=local.waiting + data.draw(st.integers(0, 5)),
        predicted_wait_s=None if wait is None else wait + data.draw(SECONDS),
        prefill_s=None if local.prefill_s is None else local.prefill_s + data.draw(SECONDS),
        decode_s=None if local.decode_s is None else local.decode_s + data.draw(SECONDS),
        decode_per_s=None
        if local.decode_per_s is None
        else local.decode_per_s * data.draw(st.floats(0.1, 1)),
        thermal=hotter,
        factor=local.factor * data.draw(st.floats(0.05, 1)),
    )
    if decide(f, replace(v, local=local)).target == "remote":
        assert decide(f, replace(v, local=worse)).target == "remote"


@given(features, views, SECONDS, SECONDS)
def test_waiting_longer_never_brings_a_request_back(f: Features, v: View, waited: float, more: float) -> None:
    if after_wait(f, v, waited).target == "remote":
        assert after_wait(f, v, waited + more).target == "remote"
