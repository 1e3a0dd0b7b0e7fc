"""Deciding again, before the first token."""

from __future__ import annotations

from typing import Any

import pytest

from appliance.routing import Decision, after_failure, after_wait
from tests.routing.views import BUSY, FULL, request, view

NONE: tuple[dict[str, Any], ...] = ()
DOWN = {"up": False}
HOT = {"thermal": "critical"}


@pytest.mark.parametrize(
    ("features", "seen", "waited", "reason"),
    [
        ({}, {"local": BUSY}, 3.0, "local.queued"),
        ({}, {"local": BUSY}, 8.0, "local.queued"),
        ({}, {"local": BUSY}, 8.1, "remote.queue"),
        ({}, {"local": {**BUSY, "predicted_wait_s": None}}, 9.0, "remote.queue"),
        ({}, {"local": {**BUSY, "thermal": "throttled", "factor": 0.8}}, 9.0, "remote.thermal"),
        ({}, {"local": {**BUSY, "thermal": "throttled", "factor": 0.8}}, 20.0, "remote.queue"),
        ({}, {"local": BUSY, "remotes": NONE}, 99.0, "local.queued"),
        ({}, {"local": BUSY, "remotes": (DOWN,)}, 99.0, "local.queued"),
        ({}, {"local": BUSY, "policy": "local-only"}, 99.0, "local.queued"),
        ({"wish": "local"}, {"local": BUSY}, 99.0, "local.pinned"),
        ({"keyless_unknown_user": True}, {"local": BUSY}, 99.0, "local.queued"),
        ({"local_fields": ("grammar",)}, {"local": BUSY}, 99.0, "local.queued"),
        ({}, {"local": FULL, "remotes": NONE}, 99.0, "local.queued"),
        ({}, {"local": {"state": "loading"}, "remotes": NONE}, 99.0, "local.queued"),
        ({}, {"local": {"state": "loading"}}, 1.0, "remote.loading"),
        ({}, {"local": {"state": "failed"}}, 1.0, "remote.engine_down"),
        ({"wish": "local"}, {"local": {"state": "failed"}}, 1.0, "reject.unavailable"),
        ({"wish": "local"}, {"local": HOT}, 1.0, "reject.thermal"),
        (
            {},
            {"local": {**BUSY, "prefill_s": 1.0, "decode_s": 2.0}, "remotes": ({"finish_s": 90.0},)},
            9.0,
            "local.queued",
        ),
    ],
)
def test_a_request_that_waits(
    features: dict[str, Any], seen: dict[str, Any], waited: float, reason: str
) -> None:
    assert after_wait(request(**features), view(**seen), waited).reason == reason


def test_the_wait_is_in_the_sentence() -> None:
    made = after_wait(request(), view(local=BUSY), 9.5)
    assert made.remote == "vllm"
    assert "9.5 s" in made.detail
    assert "8.0 s" in made.detail


def failed(side: str, features: dict[str, Any], seen: dict[str, Any], remote: str | None = None) -> Decision:
    made = after_failure(request(**features), view(**seen), side, "connection reset", remote=remote)  # type: ignore[arg-type]
    assert "connection reset" in made.detail
    return made


@pytest.mark.parametrize(
    ("features", "seen", "reason"),
    [
        ({}, {}, "remote.engine_down"),
        ({}, {"policy": "fastest"}, "remote.engine_down"),
        ({}, {"remotes": NONE}, "reject.unavailable"),
        ({}, {"remotes": (DOWN,)}, "reject.unavailable"),
        ({}, {"remotes": ({"has_model": False},)}, "reject.unavailable"),
        ({}, {"policy": "local-only"}, "reject.unavailable"),
        ({"wish": "local"}, {}, "reject.unavailable"),
        ({"keyless_unknown_user": True}, {}, "reject.unavailable"),
        ({"local_fields": ("grammar",)}, {}, "reject.unavailable"),
        ({"max_tokens": 99_999}, {}, "reject.unavailable"),
    ],
)
def test_the_local_side_failed(features: dict[str, Any], seen: dict[str, Any], reason: str) -> None:
    made = failed("local", features, seen)
    assert made.reason == reason
    assert made.target != "local"


@pytest.mark.parametrize(
    ("features", "seen", "reason"),
    [
        ({}, {}, "local.fallback"),
        ({}, {"local": BUSY}, "local.fallback"),
        ({}, {"local": {"state": "loading"}}, "local.fallback"),
        ({}, {"local": {"state": "failed"}}, "reject.unavailable"),
        ({}, {"local": HOT}, "reject.thermal"),
        ({}, {"local": FULL}, "reject.queue_full"),
        ({}, {"local": {"serves": False}}, "reject.unavailable"),
        ({}, {"no_local": True}, "reject.unavailable"),
        ({}, {"policy": "remote-only"}, "reject.unavailable"),
        ({"wish": "remote"}, {}, "reject.unavailable"),
        ({"prompt_tokens": 5000}, {}, "reject.unavailable"),
    ],
)
def test_the_remote_side_failed(features: dict[str, Any], seen: dict[str, Any], reason: str) -> None:
    made = failed("remote", features, seen)
    assert made.reason == reason
    assert made.target != "remote"


def test_a_named_remote_that_failed_gives_way_to_the_next() -> None:
    two = ({"name": "first"}, {"name": "second"})
    made = failed("remote", {"wish": "remote"}, {"remotes": two}, remote="first")
    assert (made.target, made.reason, made.remote) == ("remote", "remote.forced", "second")
    hot = failed("remote", {}, {"local": HOT, "remotes": two}, remote="first")
    assert (hot.reason, hot.remote) == ("remote.thermal", "second")


def test_the_refusal_after_a_failure_keeps_the_longer_retry() -> None:
    made = failed("remote", {}, {"local": HOT})
    assert (made.status, made.retry_after_s) == (503, 60)
    assert "critically hot" in made.detail


def test_a_remote_that_just_failed_is_not_said_to_be_missing() -> None:
    for remote in ("vllm", None):
        made = failed("remote", {}, {"local": {"state": "failed"}}, remote=remote)
        assert "no remote is configured" not in made.detail
        assert "vllm is down (it has just failed)" in made.detail


def test_a_local_side_that_just_failed_may_be_back_soon() -> None:
    made = failed("local", {}, {"remotes": NONE})
    assert (made.status, made.retry_after_s) == (503, 10)


def test_foreign_text_in_the_cause_is_cleaned() -> None:
    made = after_failure(request(), view(), "remote", "bad\x1b[31m\nnews")
    assert "bad[31m news" in made.detail
