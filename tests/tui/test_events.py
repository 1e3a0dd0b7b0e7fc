"""What happened between two snapshots, each told once."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from appliance.client import StatusSnapshot
from tests.client import documents
from tests.tui.test_state import with_engine
from tui import events


def told(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """The sentences between two documents."""
    return [
        e.text
        for e in events.between(StatusSnapshot.parse(before), StatusSnapshot.parse(after), documents.NOW)
    ]


def changed(**changes: Any) -> dict[str, Any]:
    """The normal document with other top-level values."""
    return documents.normal() | changes


def restarted() -> dict[str, Any]:
    """The normal document after one restart."""
    document = documents.normal()
    document["engines"][0]["restarts"] = 1
    return document


def after_request(**row: Any) -> dict[str, Any]:
    """The normal document with one more request."""
    document = copy.deepcopy(documents.normal())
    document["requests"]["recent"].insert(0, {"request_id": "new"} | row)
    return document


DOWNLOAD = documents.loading()["downloads"][0]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (documents.normal(), documents.normal(), []),
        (with_engine("loading"), documents.normal(), ["The engine is ready: qwen2.5-32b-instruct:Q4_K_M."]),
        (with_engine("busy"), documents.normal(), []),
        (changed(engines=[]), with_engine("loading"), ["The engine is loading qwen2.5-32b-instruct:Q4_K_M."]),
        (with_engine("starting"), with_engine("loading"), []),
        (documents.normal(), with_engine("absent"), ["The engine is stopped."]),
        (documents.normal(), changed(engines=[]), ["The engine is stopped."]),
        (documents.normal(), restarted(), ["The engine was restarted (restart 1)."]),
        (documents.normal(), changed(thermal="throttled"), ["Heat is throttled, was cool."]),
        (documents.normal(), after_request(route="remote", reason="remote.queue"),
         ["Sent to remote: local queue too long."]),
        (documents.normal(), after_request(route="none", status=503, reason="reject.thermal"),
         ["A request ended with 503: too hot."]),
        (documents.normal(), after_request(route="local", status=200), []),
        (changed(downloads=[DOWNLOAD]), changed(downloads=[DOWNLOAD | {"phase": "done"}]),
         ["Downloaded and verified: mistral-small-24b-instruct:Q4_K_M."]),
        (changed(downloads=[DOWNLOAD]),
         changed(downloads=[DOWNLOAD | {"phase": "failed", "message": "disk full"}]),
         ["The download of mistral-small-24b-instruct:Q4_K_M failed: disk full"]),
        (documents.normal(), changed(notes=[{"code": "on_battery", "detail": "41 %"}]), ["on_battery: 41 %"]),
        (changed(notes=[{"code": "on_battery"}]), documents.normal(), ["on_battery: over."]),
    ],
)  # fmt: skip
def test_changes_are_told(before: dict[str, Any], after: dict[str, Any], expected: list[str]) -> None:
    assert told(before, after) == expected


def pool(*rows: dict[str, Any]) -> dict[str, Any]:
    """The normal document with these models."""
    return documents.normal() | {"engines": list(rows)}


def note(code: str, detail: str) -> dict[str, Any]:
    """A note of the machine, or of the model that its detail begins with."""
    return {"code": code, "detail": detail}


A, B = documents.resident("a:Q4", default=True), documents.resident("b:Q4")


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (pool(A), pool(A, B | {"state": "loading"}), ["b:Q4 is being loaded."]),
        (pool(A, B | {"state": "loading"}), pool(A, B), ["b:Q4 is ready."]),
        (pool(A, B), pool(A), ["b:Q4 was unloaded."]),
        (pool(A, B), pool(A | {"state": "absent"}, B), ["a:Q4 was unloaded."]),
        (pool(A, B | {"state": "absent", "wanted": 1}), pool(A), []),
        (pool(A, B | {"state": "loading"}),
         pool(A, B | {"state": "failed", "error": "It ended.", "cause": "Why."}),
         ["b:Q4 failed: It ended. Why."]),
        (pool(A, B), pool(A, B | {"restarts": 1, "crash": {"message": "The engine ended (signal 9)."}}),
         ["b:Q4 was restarted (restart 1): The engine ended (signal 9)."]),
        (pool(A, B | {"state": "busy"}), pool(A, B | {"restarts": 1, "state": "loading"}),
         ["b:Q4 was restarted (restart 1)."]),
        (pool(A, B), pool(B | {"default": True}, A | {"default": False}),
         ["The default model is b:Q4 now, was a:Q4."]),
        (pool(A, B), pool(B, A), []),
        (pool(A, B) | {"notes": [note("x", "slow")]},
         pool(A, B) | {"notes": [note("x", "slower"), note("x", "b:Q4: slow")]}, ["x: b:Q4: slow"]),
        (pool(A, B) | {"notes": [note("x", "slow"), note("x", "b:Q4: slow")]},
         pool(A, B) | {"notes": [note("x", "b:Q4: slow")]}, ["x: over."]),
        (pool(A, B) | {"notes": [note("x", "b:Q4: slow")]}, pool(A, B), ["x of b:Q4: over."]),
        (pool(A), pool(B | {"default": True}),
         ["a:Q4 was unloaded.", "b:Q4 is ready.", "The default model is b:Q4 now, was a:Q4."]),
    ],
)  # fmt: skip
def test_of_several_models_each_is_named(
    before: dict[str, Any], after: dict[str, Any], expected: list[str]
) -> None:
    assert told(before, after) == expected


def test_a_failure_is_told_with_its_reason_and_as_bad() -> None:
    happened = events.between(
        StatusSnapshot.parse(documents.loading()), StatusSnapshot.parse(documents.failed()), documents.NOW
    )
    failure = next(event for event in happened if event.tone == "bad")
    assert failure.text == (
        "The engine failed: The engine ended while loading (exit code 1). The GPU ran out of memory."
    )


def test_the_first_snapshot_tells_nothing() -> None:
    assert events.between(None, StatusSnapshot.parse(documents.failed()), documents.NOW) == ()
