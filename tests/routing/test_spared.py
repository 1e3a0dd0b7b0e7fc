"""On battery, and while batch work waits first."""
# ruff: noqa: E501 (a row on one line is easier to compare with its neighbours)

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from appliance.routing import Features, View, after_failure, after_wait, decide
from appliance.routing.rules import barrier
from tests.routing.test_properties import SECONDS, every, features, views
from tests.routing.views import BUSY, FULL, request, view

BATCH = {"lane": "batch"}
SAVER: dict[str, Any] = {"power": "battery", "battery": "saver"}
REMOTE: dict[str, Any] = {"power": "battery", "battery": "remote"}
NONE: tuple[dict[str, Any], ...] = ()
DOWN = ({"up": False},)
EASES: dict[str, Any] = {"eases": "heat slows the machine", "thermal": "throttled"}
RISING: dict[str, Any] = {"eases": "it got hot fast"}
TIMES = {"prefill_s": 1.0, "decode_s": 3.0}
FREE = {**EASES, "batch_wait_s": 0.0}

# name, request, view, reason
ROWS: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    # --- battery = remote
    ("all leaves", {}, REMOTE, "remote.battery"),
    ("batch too", BATCH, REMOTE, "remote.battery"),
    ("fastest alike", {}, {**REMOTE, "policy": "fastest"}, "remote.battery"),
    ("though the remote is slower", {}, {**REMOTE, "local": TIMES, "remotes": ({"finish_s": 90.0},)}, "remote.battery"),
    ("a cold model is not loaded for it", {}, {**REMOTE, "local": {"state": "cold"}}, "remote.battery"),
    ("a full queue is not the reason", {}, {**REMOTE, "local": FULL}, "remote.battery"),
    ("unknown power is mains", {}, {**REMOTE, "power": "unknown"}, "local.ok"),
    ("on mains", {}, {**REMOTE, "power": "ac"}, "local.ok"),
    ("no remote", {}, {**REMOTE, "remotes": NONE}, "local.ok"),
    ("remote down", {}, {**REMOTE, "remotes": DOWN}, "local.ok"),
    ("too large for the remote", {"max_tokens": 99_999}, REMOTE, "local.ok"),
    ("local asked", {"wish": "local"}, REMOTE, "local.pinned"),
    ("local-only wins", {}, {**REMOTE, "policy": "local-only"}, "local.ok"),
    ("keyless", {"keyless_unknown_user": True}, REMOTE, "local.ok"),
    ("a field of the local engine", {"local_fields": ("grammar",)}, REMOTE, "local.ok"),
    ("keyless and cold: loaded here", {"keyless_unknown_user": True}, {**REMOTE, "local": {"state": "cold"}}, "local.queued"),
    ("remote asked", {"wish": "remote"}, REMOTE, "remote.forced"),
    ("remote-only", {}, {**REMOTE, "policy": "remote-only"}, "remote.rule"),
    ("heat is said first", {}, {**REMOTE, "local": {"thermal": "critical"}}, "remote.thermal"),
    ("a broken engine is said first", {}, {**REMOTE, "local": {"state": "failed"}}, "remote.engine_down"),
    # --- battery = saver
    ("batch leaves", BATCH, SAVER, "remote.battery"),
    ("interactive stays", {}, SAVER, "local.ok"),
    ("one at a time", {}, {**SAVER, "local": {"running": 1, "at_once": 1, "predicted_wait_s": 2.0}}, "local.queued"),
    ("the limit of the wait holds", {}, {**SAVER, "local": {"running": 1, "at_once": 1, "predicted_wait_s": 9.0}}, "remote.queue"),
    ("batch, unknown power", BATCH, {**SAVER, "power": "unknown"}, "local.ok"),
    ("batch, on mains", BATCH, {**SAVER, "power": "ac"}, "local.ok"),
    ("batch that may not leave waits", {**BATCH, "wish": "local"}, {**SAVER, "local": EASES}, "local.pinned"),
    ("batch without a remote waits", BATCH, {**SAVER, "local": EASES, "remotes": NONE}, "local.queued"),
    ("batch, local-only", BATCH, {**SAVER, "local": EASES, "policy": "local-only"}, "local.queued"),
    # --- battery = full
    ("full is as on mains", BATCH, {"power": "battery"}, "local.ok"),
    # --- batch work waits first
    ("eased batch leaves", BATCH, {"local": EASES}, "remote.thermal"),
    ("while it only gets hot batch waits and stays", BATCH, {"local": RISING}, "local.queued"),
    ("and when it is warm", BATCH, {"local": {**RISING, "thermal": "warm"}}, "local.queued"),
    ("interactive stays under easing", {}, {"local": EASES}, "local.ok"),
    ("eased batch does not load a model", BATCH, {"local": {**EASES, "state": "cold"}}, "remote.thermal"),
    ("a remote of unknown speed will do", BATCH, {"local": {**FREE, **TIMES}}, "remote.thermal"),
    ("a slower remote won't", BATCH, {"local": {**FREE, **TIMES}, "remotes": ({"finish_s": 9.0},)}, "local.ok"),
    ("a slower remote will while the turn is unknown", BATCH, {"local": {**EASES, **TIMES}, "remotes": ({"finish_s": 9.0},)}, "remote.thermal"),
    ("the pause counts", BATCH, {"local": {**EASES, **TIMES, "batch_wait_s": 30.0}, "remotes": ({"finish_s": 9.0},)}, "remote.thermal"),
    ("the pause is over soon", BATCH, {"local": {**EASES, **TIMES, "batch_wait_s": 3.0}, "remotes": ({"finish_s": 9.0},)}, "local.queued"),
    ("eased batch that may not leave", {**BATCH, "wish": "local"}, {"local": EASES}, "local.pinned"),
    ("eased batch, local-only", BATCH, {"local": EASES, "policy": "local-only"}, "local.queued"),
    ("eased batch, keyless", {**BATCH, "keyless_unknown_user": True}, {"local": EASES}, "local.queued"),
    ("eased batch, remote down", BATCH, {"local": EASES, "remotes": DOWN}, "local.queued"),
    ("eased batch, queue full", BATCH, {"local": {**EASES, **FULL}, "remotes": NONE}, "reject.queue_full"),
    ("batch that waits is not before interactive", {}, {"local": {**EASES, "waiting": 8, "batch_waiting": 8}}, "local.ok"),
    ("nor does it fill its queue", {}, {"local": {**EASES, **FULL, "batch_waiting": 6}, "remotes": NONE}, "local.queued"),
    ("without easing it does", {}, {"local": {**FULL, "batch_waiting": 6}, "remotes": NONE}, "reject.queue_full"),
]  # fmt: skip


@pytest.mark.parametrize(("asked", "seen", "reason"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_where_it_goes(asked: dict[str, Any], seen: dict[str, Any], reason: str) -> None:
    made = decide(request(**asked), view(**seen))
    assert made.reason == reason, made.detail
    assert made.detail.endswith(".")


@pytest.mark.parametrize(
    ("asked", "seen", "reason"),
    [
        ({}, {**REMOTE, "local": BUSY}, "remote.battery"),
        ({"wish": "local"}, {**REMOTE, "local": BUSY}, "local.pinned"),
        (BATCH, {**SAVER, "local": BUSY}, "remote.battery"),
        ({}, {**SAVER, "local": BUSY}, "local.queued"),
        (BATCH, {"local": {**BUSY, **EASES}}, "remote.thermal"),
        (BATCH, {"local": {**BUSY, **EASES}, "policy": "local-only"}, "local.queued"),
    ],
)
def test_a_request_that_waits_while_it_begins(
    asked: dict[str, Any], seen: dict[str, Any], reason: str
) -> None:
    assert after_wait(request(**asked), view(**seen), 1.0).reason == reason


def test_a_remote_that_fails_on_battery_gives_way_to_the_next_and_then_to_this_machine() -> None:
    two = view(**REMOTE, remotes=({"name": "a"}, {"name": "b"}))
    made = after_failure(request(), two, "remote", "reset", remote="a")
    assert (made.reason, made.remote) == ("remote.battery", "b")
    assert after_failure(request(), two, "remote", "reset").reason == "local.fallback"


@pytest.mark.parametrize(
    ("asked", "seen", "words"),
    [
        ({}, REMOTE, ("runs on battery", "governor.battery is remote", "vllm takes it")),
        (BATCH, SAVER, ("not done on battery", "governor.battery is saver")),
        (BATCH, {"local": EASES}, ("Batch work waits first, since heat slows the machine", "vllm")),
        (BATCH, {"local": EASES, "remotes": NONE}, ("waits here: batch work waits first", "heat slows")),
    ],
)
def test_the_detail_says_why(asked: dict[str, Any], seen: dict[str, Any], words: tuple[str, ...]) -> None:
    detail = decide(request(**asked), view(**seen)).detail
    assert all(word in detail for word in words), detail


def test_a_full_queue_of_eased_batch_asks_to_come_back_after_a_pause() -> None:
    made = decide(request(**BATCH), view(local={**FULL, **EASES}, remotes=NONE))
    assert (made.reason, made.retry_after_s) == ("reject.queue_full", 60)


def test_the_predicted_finish_of_eased_batch_is_unknown_rather_than_wrong() -> None:
    local = {**TIMES, "predicted_wait_s": 0.0, **EASES}
    assert decide(request(**BATCH), view(local=local, remotes=NONE)).local_finish_s is None
    assert decide(request(), view(local=local, remotes=NONE)).local_finish_s == 4.0
    soon = {**local, "batch_wait_s": 10.0}
    assert decide(request(**BATCH), view(local=soon, remotes=NONE)).local_finish_s == 14.0


@given(features, views, SECONDS)
def test_what_a_rule_keeps_here_never_leaves_for_battery_or_heat(f: Features, v: View, waited: float) -> None:
    for made in every(f, v, waited):
        assert not (barrier(f, v) and made.target == "remote"), made


@given(features, views, SECONDS)
def test_unknown_power_and_full_are_as_mains(f: Features, v: View, waited: float) -> None:
    mains = every(f, replace(v, power="ac"), waited)
    assert every(f, replace(v, power="unknown"), waited) == mains
    assert every(f, replace(v, battery="full"), waited) == mains


@given(features, views)
def test_a_battery_refuses_nothing_that_mains_would_answer(f: Features, v: View) -> None:
    if decide(f, replace(v, power="ac")).target != "reject":
        assert decide(f, v).target != "reject"


@given(features, views)
def test_easing_changes_nothing_for_interactive_requests_but_who_is_ahead(f: Features, v: View) -> None:
    f = replace(f, lane="interactive")
    if v.local is None or v.local.batch_waiting:
        return
    calm = replace(v, local=replace(v.local, eases=""))
    assert decide(f, v) == decide(f, calm)
