"""The router over a trace: each request decided again, with the heat and the settings of the replay."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from appliance.monitor.governor import PowerSource
from appliance.operations.replay.governed import Governed, heat_at
from appliance.operations.replay.under import Under
from appliance.operations.replay.values import Asked, Model, Remote, Taken, Verdict
from appliance.routing import (
    ON_BATTERY,
    Decision,
    Features,
    LocalView,
    RemoteView,
    Side,
    View,
    after_failure,
    after_wait,
    decide,
    saves,
)

_CAUSE = "as recorded"


class World:
    """Models and remotes as the trace's own lines say them."""

    def __init__(self) -> None:
        self.models: dict[str, Model] = {}
        self.remotes: dict[str, Remote] = {}

    def view(self, asked: Asked, at: float, governed: Governed, under: Under) -> View:
        """The machine for a written request."""
        return View(
            policy=under.policy,
            max_wait_s=under.max_wait_s,
            goal_ttft_s=under.goal_ttft_s,
            goal_decode_per_s=under.goal_decode_per_s,
            local=self._local(asked.features, at, governed, under),
            remotes=tuple(_remote(one, asked.features) for one in self.remotes.values()),
            power=governed.source,
            battery=under.battery,
        )

    def _local(self, f: Features, at: float, governed: Governed, under: Under) -> LocalView | None:
        """Without any line about models, the one that is asked for is served and idle."""
        model = self.models.get(f.model) if self.models else Model(f.model)
        if model is None:
            return None
        heat = heat_at(governed.view(at), model.places)
        decode = model.decode_per_s or governed.usual_speed(f.model)
        return LocalView(
            state=model.state,
            slots=model.slots,
            running=model.running,
            waiting=model.waiting,
            max_queue=under.max_queue,
            predicted_wait_s=model.predicted_wait_s,
            ctx=model.ctx,
            thermal=heat.thermal,
            factor=heat.factor,
            serves=model.state != "absent",
            prefill_s=_over(f.prompt_tokens, model.prefill_per_s),
            decode_s=0.0 if f.kind == "embedding" else _over(f.max_tokens, decode),
            decode_per_s=decode,
            load_s=model.load_s,
            eases=_eases(at, governed, under, governed.source),
            at_once=1 if saves(governed.source, under.battery) else None,
        )


def written(asked: Asked, at: float, world: World, governed: Governed, under: Under) -> Verdict:
    """What becomes of a request that somebody wrote."""
    made = decide(asked.features, world.view(asked, at, governed, under))
    return Verdict(
        at, asked.request_id, asked.features.model, "first", asked.before, None, made.reason, made.detail,
        made.remote,
    )  # fmt: skip


def recorded(taken: Taken, at: float, governed: Governed, under: Under) -> Verdict | None:
    """What would become of a recorded decision; None when its view was not kept."""
    if taken.view is None:
        return None
    made = _again(taken, _now(taken.view, taken.features.model, at, governed, under))
    return Verdict(
        at, taken.request_id, taken.features.model, taken.moment, taken.reason, taken.detail, made.reason,
        made.detail, made.remote,
    )  # fmt: skip


def _now(view: View, model: str, at: float, governed: Governed, under: Under) -> View:
    """The recorded machine with what the replay's governor and settings say instead. Queue, engine and
    remotes stay as they were."""
    local = view.local
    power = view.power if governed.source == "unknown" else governed.source
    if local is not None:
        heat = heat_at(governed.view(at), governed.places_of(model))
        local = replace(
            local, thermal=heat.thermal, factor=heat.factor, max_queue=under.max_queue,
            eases=_eases(at, governed, under, power), at_once=1 if saves(power, under.battery) else None,
        )  # fmt: skip
    return replace(
        view,
        policy=under.policy,
        max_wait_s=under.max_wait_s,
        goal_ttft_s=under.goal_ttft_s,
        goal_decode_per_s=under.goal_decode_per_s,
        local=local,
        power=power,
        battery=under.battery,
    )


def _eases(at: float, governed: Governed, under: Under, power: PowerSource) -> str:
    return governed.view(at).eases or (ON_BATTERY if saves(power, under.battery) else "")


def _again(taken: Taken, view: View) -> Decision:
    """By the function that decided it then."""
    given = taken.given
    if taken.moment == "waited" and "waited_s" in given:
        return after_wait(taken.features, view, given["waited_s"])
    if taken.moment == "failed" and "failed" in given:
        failed = cast("Side", given["failed"])
        return after_failure(taken.features, view, failed, _CAUSE, remote=given.get("remote"))
    return decide(taken.features, view)


def _remote(remote: Remote, f: Features) -> RemoteView:
    has = remote.models is None or f.model in remote.models
    return RemoteView(
        remote.name, remote.up, has, remote.max_model_len, "as the trace says", remote.ttft_s, remote.finish_s
    )


def _over(tokens: int | None, per_s: float | None) -> float | None:
    return None if tokens is None or per_s is None else tokens / per_s
