"""The decision as a table: one row, one situation, the answer that a user would expect."""
# ruff: noqa: E501 (a row on one line is easier to compare with its neighbours)

from __future__ import annotations

from typing import Any

import pytest

from appliance.routing import REASONS, Decision, decide
from tests.routing.views import BUSY, FULL, SWAMPED, request, view

DOWN = {"up": False, "detail": "connection refused"}
UNMAPPED = {"has_model": False}
NONE: tuple[dict[str, Any], ...] = ()
LONG = {"prompt_tokens": 5000}
GRAMMAR = {"local_fields": ("grammar",)}
KEYLESS = {"keyless_unknown_user": True}
HOT = {"thermal": "critical"}
SLOWED = {**BUSY, "thermal": "throttled", "factor": 0.4}
TIMES = {"prefill_s": 1.0, "decode_s": 9.0}
SOON = {"ttft_s": 0.3, "finish_s": 4.0}
HALF = {"thermal": "throttled", "factor": 0.5}
LATE = {"ttft_s": 3.0, "finish_s": 60.0}

# name, request, view, target, reason
ROWS: list[tuple[str, dict[str, Any], dict[str, Any], str, str]] = [
    # --- 1: contradictions
    ("remote asked of a local-only appliance", {"wish": "remote"}, {"policy": "local-only"}, "reject", "reject.local_only"),
    ("local asked of a remote-only appliance", {"wish": "local"}, {"policy": "remote-only"}, "reject", "reject.local_only"),
    ("contradiction beats a missing model", {"wish": "local"}, {"policy": "remote-only", "local": {"serves": False}}, "reject", "reject.local_only"),
    # --- 2: only a remote may answer
    ("remote asked", {"wish": "remote"}, {}, "remote", "remote.forced"),
    ("remote asked, fastest", {"wish": "remote"}, {"policy": "fastest"}, "remote", "remote.forced"),
    ("remote asked, remote-only", {"wish": "remote"}, {"policy": "remote-only"}, "remote", "remote.forced"),
    ("remote asked, local broken", {"wish": "remote"}, {"local": {"state": "failed"}}, "remote", "remote.forced"),
    ("remote asked, none configured", {"wish": "remote"}, {"remotes": NONE}, "reject", "reject.unavailable"),
    ("remote asked, down", {"wish": "remote"}, {"remotes": (DOWN,)}, "reject", "reject.unavailable"),
    ("remote asked, unmapped", {"wish": "remote"}, {"remotes": (UNMAPPED,)}, "reject", "reject.unavailable"),
    ("remote asked, keyless", {"wish": "remote", **KEYLESS}, {}, "reject", "reject.key"),
    ("remote asked, grammar", {"wish": "remote", **GRAMMAR}, {}, "reject", "reject.unsupported"),
    ("remote asked, prompt too long for it", {"wish": "remote", "prompt_tokens": 40_000}, {}, "reject", "reject.context"),
    ("remote asked, only the wanted output too long", {"wish": "remote", "max_tokens": 32_700}, {}, "remote", "remote.forced"),
    ("policy remote-only", {}, {"policy": "remote-only"}, "remote", "remote.rule"),
    ("policy remote-only, idle local is no reason", {}, {"policy": "remote-only", "local": TIMES, "remotes": (LATE,)}, "remote", "remote.rule"),
    ("policy remote-only, down", {}, {"policy": "remote-only", "remotes": (DOWN,)}, "reject", "reject.unavailable"),
    ("policy remote-only, none", {}, {"policy": "remote-only", "remotes": NONE}, "reject", "reject.unavailable"),
    ("policy remote-only, keyless", KEYLESS, {"policy": "remote-only"}, "reject", "reject.key"),
    ("policy remote-only, grammar", GRAMMAR, {"policy": "remote-only"}, "reject", "reject.unsupported"),
    # --- 3: not served here
    ("not local", {}, {"local": {"serves": False}}, "remote", "remote.not_local"),
    ("no local side at all", {}, {"no_local": True}, "remote", "remote.not_local"),
    ("not local, nobody maps it", {}, {"local": {"serves": False}, "remotes": (UNMAPPED,)}, "reject", "reject.not_found"),
    ("not local, no remotes", {}, {"local": {"serves": False}, "remotes": NONE}, "reject", "reject.not_found"),
    ("not local, remote down", {}, {"local": {"serves": False}, "remotes": (DOWN,)}, "reject", "reject.unavailable"),
    ("not local, local asked", {"wish": "local"}, {"local": {"serves": False}}, "reject", "reject.local_only"),
    ("not local, local-only", {}, {"policy": "local-only", "local": {"serves": False}}, "reject", "reject.local_only"),
    ("not local, keyless", KEYLESS, {"local": {"serves": False}}, "reject", "reject.key"),
    ("not local, grammar", GRAMMAR, {"local": {"serves": False}}, "reject", "reject.unsupported"),
    ("not local, too long for the remote", {"prompt_tokens": 40_000}, {"no_local": True}, "reject", "reject.context"),
    # --- 4: context
    ("longer than the local slot", LONG, {}, "remote", "remote.context"),
    ("exactly full prompt leaves no token of output", {"prompt_tokens": 4096}, {}, "remote", "remote.context"),
    ("one token left", {"prompt_tokens": 4095, "max_tokens": 1}, {}, "local", "local.ok"),
    ("a long wanted output alone stays", {"max_tokens": 8000}, {}, "local", "local.ok"),
    ("too long, remote smaller", LONG, {"remotes": ({"max_model_len": 2048},)}, "reject", "reject.context"),
    ("too long, remote unknown is not larger", LONG, {"remotes": ({"max_model_len": None},)}, "reject", "reject.context"),
    ("too long, remote larger but not enough", {"prompt_tokens": 5000, "max_tokens": 4000}, {"remotes": ({"max_model_len": 8192},)}, "reject", "reject.context"),
    ("too long, remote down", LONG, {"remotes": (DOWN,)}, "reject", "reject.context"),
    ("too long, no remotes", LONG, {"remotes": NONE}, "reject", "reject.context"),
    ("too long, local asked", {**LONG, "wish": "local"}, {}, "reject", "reject.context"),
    ("too long, local-only", LONG, {"policy": "local-only"}, "reject", "reject.context"),
    ("too long, keyless", {**LONG, **KEYLESS}, {}, "reject", "reject.context"),
    ("unknown local context is no limit", LONG, {"local": {"ctx": None}}, "local", "local.ok"),
    ("unknown prompt is no limit", {"prompt_tokens": None}, {}, "local", "local.ok"),
    # --- 5: engine down
    ("engine failed", {}, {"local": {"state": "failed"}}, "remote", "remote.engine_down"),
    ("engine absent", {}, {"local": {"state": "absent"}}, "remote", "remote.engine_down"),
    ("engine stopping", {}, {"local": {"state": "stopping"}}, "remote", "remote.engine_down"),
    ("engine in a state that nobody knows", {}, {"local": {"state": "confused"}}, "remote", "remote.engine_down"),
    ("engine failed, no remotes", {}, {"local": {"state": "failed"}, "remotes": NONE}, "reject", "reject.unavailable"),
    ("engine failed, remote down", {}, {"local": {"state": "failed"}, "remotes": (DOWN,)}, "reject", "reject.unavailable"),
    ("engine failed, local asked", {"wish": "local"}, {"local": {"state": "failed"}}, "reject", "reject.unavailable"),
    ("engine failed, local-only", {}, {"policy": "local-only", "local": {"state": "failed"}}, "reject", "reject.unavailable"),
    ("engine failed, keyless", KEYLESS, {"local": {"state": "failed"}}, "reject", "reject.unavailable"),
    ("engine failed, grammar", GRAMMAR, {"local": {"state": "failed"}}, "reject", "reject.unavailable"),
    ("engine failed and hot: the engine comes first", {}, {"local": {"state": "failed", **HOT}}, "remote", "remote.engine_down"),
    # --- 6: critical heat
    ("critical", {}, {"local": HOT}, "remote", "remote.thermal"),
    ("critical while loading", {}, {"local": {"state": "loading", **HOT}}, "remote", "remote.thermal"),
    ("critical, no remotes", {}, {"local": HOT, "remotes": NONE}, "reject", "reject.thermal"),
    ("critical, local asked fails closed", {"wish": "local"}, {"local": HOT}, "reject", "reject.thermal"),
    ("critical, local-only fails closed", {}, {"policy": "local-only", "local": HOT}, "reject", "reject.thermal"),
    ("critical, grammar", GRAMMAR, {"local": HOT}, "reject", "reject.thermal"),
    ("critical, keyless", KEYLESS, {"local": HOT}, "reject", "reject.thermal"),
    ("unknown heat is not critical", {}, {"local": {"thermal": "unknown"}}, "local", "local.ok"),
    ("warm changes nothing", {}, {"local": {**BUSY, "thermal": "warm", "factor": 0.4}}, "local", "local.queued"),
    # --- 7: loading
    ("loading", {}, {"local": {"state": "loading"}}, "remote", "remote.loading"),
    ("starting", {}, {"local": {"state": "starting"}}, "remote", "remote.loading"),
    ("loading, no remotes: waits", {}, {"local": {"state": "loading"}, "remotes": NONE}, "local", "local.queued"),
    ("loading, local asked: waits", {"wish": "local"}, {"local": {"state": "loading"}}, "local", "local.pinned"),
    ("loading, keyless: waits", KEYLESS, {"local": {"state": "loading"}}, "local", "local.queued"),
    ("cold: a remote answers meanwhile", {}, {"local": {"state": "cold"}}, "remote", "remote.loading"),
    ("cold, no remotes: loaded for it", {}, {"local": {"state": "cold"}, "remotes": NONE}, "local", "local.queued"),
    ("cold, local asked: loaded for it", {"wish": "local"}, {"local": {"state": "cold"}}, "local", "local.pinned"),
    ("loading, queue full, no remotes", {}, {"local": {"state": "loading", "waiting": 8}, "remotes": NONE}, "reject", "reject.queue_full"),
    ("loading, queue full, remote", {}, {"local": {"state": "loading", "waiting": 8}}, "remote", "remote.loading"),
    # --- 8: queue full
    ("full", {}, {"local": FULL}, "remote", "remote.queue"),
    ("full, no remotes", {}, {"local": FULL, "remotes": NONE}, "reject", "reject.queue_full"),
    ("full, local asked", {"wish": "local"}, {"local": FULL}, "reject", "reject.queue_full"),
    ("full, local-only", {}, {"policy": "local-only", "local": FULL}, "reject", "reject.queue_full"),
    ("full, remote too small", {"prompt_tokens": 3000}, {"local": FULL, "remotes": ({"max_model_len": 2048},)}, "reject", "reject.queue_full"),
    ("one place left", {}, {"local": {**BUSY, "waiting": 7}}, "local", "local.queued"),
    # --- 9: too slow here
    ("wait over the limit", {}, {"local": SWAMPED}, "remote", "remote.queue"),
    ("wait exactly the limit", {}, {"local": {**BUSY, "predicted_wait_s": 8.0}}, "local", "local.queued"),
    ("wait over the limit, no remotes: waits", {}, {"local": SWAMPED, "remotes": NONE}, "local", "local.queued"),
    ("wait over the limit, local asked", {"wish": "local"}, {"local": SWAMPED}, "local", "local.pinned"),
    ("wait over the limit, keyless", KEYLESS, {"local": SWAMPED}, "local", "local.queued"),
    ("wait over the limit, grammar", GRAMMAR, {"local": SWAMPED}, "local", "local.queued"),
    ("wait over the limit, local-only", {}, {"policy": "local-only", "local": SWAMPED}, "local", "local.queued"),
    ("wait over the limit, remote needs more room", {"max_tokens": 40_000}, {"local": SWAMPED}, "local", "local.queued"),
    ("wait over the limit, remote still later", {}, {"local": {**SWAMPED, **TIMES}, "remotes": (LATE,)}, "local", "local.queued"),
    ("heat tips the wait over the limit", {}, {"local": SLOWED}, "remote", "remote.thermal"),
    ("heat tips it, no remotes", {}, {"local": SLOWED, "remotes": NONE}, "local", "local.queued"),
    ("heat tips it, local asked", {"wish": "local"}, {"local": SLOWED}, "local", "local.pinned"),
    ("throttled but still in time", {}, {"local": {**SLOWED, "factor": 0.6}}, "local", "local.queued"),
    ("throttled, but over the limit anyway", {}, {"local": {**SLOWED, "predicted_wait_s": 12.0}}, "remote", "remote.queue"),
    ("first token late, remote sooner", {}, {"local": BUSY, "remotes": (SOON,)}, "remote", "remote.queue"),
    ("first token late by the prompt alone", {}, {"local": {"prefill_s": 5.0}, "remotes": (SOON,)}, "remote", "remote.faster"),
    ("first token late by the prompt alone, unknown wait on top", {}, {"local": {**BUSY, "predicted_wait_s": None, "prefill_s": 5.0}, "remotes": (SOON,)}, "remote", "remote.faster"),
    ("fastest, the work alone is later, unknown wait on top", {}, {"policy": "fastest", "local": {**BUSY, **TIMES, "predicted_wait_s": None}, "remotes": (SOON,)}, "remote", "remote.faster"),
    ("unknown wait doesn't prove that the local side is sooner", {}, {"local": {**BUSY, "predicted_wait_s": None, "prefill_s": 5.0, "decode_s": 1.0}, "remotes": ({"ttft_s": 0.3, "finish_s": 60.0},)}, "remote", "remote.faster"),
    ("first token late, remote unknown", {}, {"local": {"prefill_s": 5.0}}, "local", "local.ok"),
    ("first token late, batch doesn't mind", {"lane": "batch"}, {"local": BUSY, "remotes": (SOON,)}, "local", "local.queued"),
    ("heat makes the first token late", {}, {"local": {"prefill_s": 1.5, "thermal": "throttled", "factor": 0.5}, "remotes": (SOON,)}, "remote", "remote.thermal"),
    ("heat makes the prompt late, remote unknown", {}, {"local": {"prefill_s": 1.5, **HALF}}, "remote", "remote.thermal"),
    ("heat makes the prompt late, remote known to be later", {}, {"local": {"prefill_s": 1.5, **HALF}, "remotes": ({"ttft_s": 9.0},)}, "local", "local.ok"),
    ("heat makes the prompt late, batch doesn't mind", {"lane": "batch"}, {"local": {"prefill_s": 1.5, **HALF}}, "local", "local.ok"),
    ("heat makes the prompt late, local asked", {"wish": "local"}, {"local": {"prefill_s": 1.5, **HALF}}, "local", "local.pinned"),
    ("heat makes decode slow, remote unknown", {}, {"local": {"decode_per_s": 20.0, **HALF}}, "remote", "remote.thermal"),
    ("heat makes decode slow, remote known to finish later", {}, {"local": {"decode_per_s": 20.0, **TIMES, **HALF}, "remotes": (LATE,)}, "local", "local.ok"),
    ("heat makes decode slow, keyless", KEYLESS, {"local": {"decode_per_s": 20.0, **HALF}}, "local", "local.ok"),
    ("heat makes decode slow, an embedding has none", {"kind": "embedding"}, {"local": {"decode_per_s": 20.0, **HALF}}, "local", "local.ok"),
    ("heat, and decode still over the goal", {}, {"local": {"decode_per_s": 31.0, **HALF}}, "local", "local.ok"),
    ("slow decode without heat stays", {}, {"local": {"decode_per_s": 5.0}}, "local", "local.ok"),
    ("slow decode, only warm stays", {}, {"local": {"decode_per_s": 20.0, "thermal": "warm", "factor": 0.5}}, "local", "local.ok"),
    ("fastest, remote sooner", {}, {"policy": "fastest", "local": TIMES, "remotes": (SOON,)}, "remote", "remote.faster"),
    ("fastest, local sooner", {}, {"policy": "fastest", "local": TIMES, "remotes": (LATE,)}, "local", "local.ok"),
    ("fastest, unknown remote speed", {}, {"policy": "fastest", "local": TIMES}, "local", "local.ok"),
    ("fastest, heat makes it later", {}, {"policy": "fastest", "local": {**TIMES, "thermal": "throttled", "factor": 0.5}, "remotes": ({"finish_s": 12.0},)}, "remote", "remote.thermal"),
    ("fastest, local asked", {"wish": "local"}, {"policy": "fastest", "local": TIMES, "remotes": (SOON,)}, "local", "local.pinned"),
    ("local-first doesn't leave for speed alone", {}, {"local": TIMES, "remotes": ({"finish_s": 4.0},)}, "local", "local.ok"),
    # --- 10: local
    ("idle", {}, {}, "local", "local.ok"),
    ("idle, local asked", {"wish": "local"}, {}, "local", "local.pinned"),
    ("idle, local-only", {}, {"policy": "local-only"}, "local", "local.ok"),
    ("idle, no remotes", {}, {"remotes": NONE}, "local", "local.ok"),
    ("idle, keyless is welcome here", KEYLESS, {}, "local", "local.ok"),
    ("idle, grammar", GRAMMAR, {}, "local", "local.ok"),
    ("one of two slots busy", {}, {"local": {"state": "busy", "running": 1}}, "local", "local.ok"),
    ("slots busy", {}, {"local": BUSY}, "local", "local.queued"),
    ("slots busy, unknown wait", {}, {"local": {**BUSY, "predicted_wait_s": None}}, "local", "local.queued"),
    ("slots busy, local asked", {"wish": "local"}, {"local": BUSY}, "local", "local.pinned"),
    ("embedding", {"kind": "embedding"}, {}, "local", "local.ok"),
]  # fmt: skip


def decided(features: dict[str, Any], seen: dict[str, Any]) -> Decision:
    return decide(request(**features), view(**seen))


@pytest.mark.parametrize(
    ("features", "seen", "target", "reason"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_where_it_goes(features: dict[str, Any], seen: dict[str, Any], target: str, reason: str) -> None:
    made = decided(features, seen)
    assert (made.target, made.reason) == (target, reason), made.detail
    assert (made.remote == "vllm") == (target == "remote")
    assert made.detail.endswith(".")
    assert made.detail[0].isupper() or made.detail.startswith("qwen3-8b")


def test_statuses_are_those_of_the_contract() -> None:
    seen = {row[4]: decided(row[1], row[2]).status for row in ROWS}
    expected = {
        "reject.local_only": 503,
        "reject.unavailable": 503,
        "reject.thermal": 503,
        "reject.queue_full": 429,
        "reject.key": 403,
        "reject.unsupported": 400,
        "reject.context": 400,
        "reject.not_found": 404,
    }
    assert {code: status for code, status in seen.items() if code.startswith("reject.")} == expected
    assert {status for code, status in seen.items() if not code.startswith("reject.")} == {None}


def test_the_reason_codes_are_those_of_the_contract() -> None:
    contract = """local.ok local.queued local.pinned local.fallback local.cap remote.queue remote.thermal
    remote.context remote.loading remote.engine_down remote.not_local remote.battery remote.faster remote.rule
    remote.forced reject.queue_full reject.rate reject.thermal reject.unavailable reject.local_only reject.deadline
    reject.context reject.unsupported reject.not_found reject.key"""
    assert set(REASONS) == set(contract.split())


@pytest.mark.parametrize(
    ("wait", "factor", "seconds"),
    [(30.2, 1.0, 31), (0.0, 1.0, 1), (500.0, 1.0, 120), (30.2, 0.5, 61), (float("inf"), 1.0, 120)],
)
def test_retry_after_of_a_full_queue_follows_the_predicted_wait(
    wait: float, factor: float, seconds: int
) -> None:
    local = {**FULL, "predicted_wait_s": wait, "thermal": "throttled", "factor": factor}
    assert decided({}, {"local": local, "remotes": NONE}).retry_after_s == seconds


def test_a_hot_machine_asks_to_come_back_after_the_dwell() -> None:
    made = decided({"wish": "local"}, {"local": HOT})
    assert (made.status, made.retry_after_s, made.retryable) == (503, 60, True)


def test_a_standing_contradiction_says_that_retrying_is_useless() -> None:
    assert not decided({"wish": "remote"}, {"policy": "local-only"}).retryable


def test_the_first_remote_that_can_serve_is_taken() -> None:
    remotes = (
        {"name": "off", "up": False},
        {"name": "other", "has_model": False},
        {"name": "small", "max_model_len": 250},
        {"name": "third"},
        {"name": "fourth"},
    )
    assert decided({}, {"local": SWAMPED, "remotes": remotes}).remote == "third"


def test_a_long_prompt_skips_the_remote_of_unknown_size() -> None:
    remotes = ({"name": "unknown", "max_model_len": None}, {"name": "large", "max_model_len": 131_072})
    assert decided({"prompt_tokens": 60_000}, {"remotes": remotes}).remote == "large"


@pytest.mark.parametrize(
    ("features", "seen", "words"),
    [
        ({}, {"local": SWAMPED}, ("12.0 s", "8.0 s", "vllm")),
        ({}, {"local": SLOWED}, ("10.0 s", "40%", "vllm")),
        ({}, {"local": {"decode_per_s": 20.0, **HALF}}, ("10.0 tokens/s", "goal of 15", "50%", "vllm")),
        (LONG, {}, ("5000", "4096", "32768")),
        ({}, {"local": FULL, "remotes": (DOWN,)}, ("8 of 8", "vllm is down (connection refused)")),
        (KEYLESS, {"local": SWAMPED}, ("12.0 s", "without a key")),
        (GRAMMAR, {"local": {"state": "failed"}}, ("failed", "grammar")),
        ({}, {"local": SWAMPED, "remotes": (UNMAPPED,)}, ("no remote is mapped to qwen3-8b",)),
        ({}, {"local": SWAMPED, "remotes": NONE}, ("no remote is configured",)),
    ],
)
def test_the_detail_tells_people_the_numbers(
    features: dict[str, Any], seen: dict[str, Any], words: tuple[str, ...]
) -> None:
    detail = decided(features, seen).detail
    assert all(word in detail for word in words), detail


def test_both_predictions_come_with_the_decision() -> None:
    local = {**BUSY, **TIMES, "thermal": "throttled", "factor": 0.5}
    made = decided({"wish": "local"}, {"local": local, "remotes": (SOON,)})
    assert (made.local_finish_s, made.remote_finish_s) == (28.0, 4.0)


def test_an_engine_that_has_given_up_says_why_and_what_to_do() -> None:
    why = "The engine crashed 4 times; \x1b[1mdo: look at `appliance logs`."
    made = decide(request(), view(local={"state": "failed", "detail": why}, remotes=()))
    assert (made.reason, made.retry_after_s) == ("reject.unavailable", 60)
    assert "crashed 4 times; [1mdo: look at `appliance logs`), and no remote is configured." in made.detail
