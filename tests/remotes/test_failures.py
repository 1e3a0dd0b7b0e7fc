"""Errors in every dialect, and the small readers beside them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from appliance.remotes import normalise_error, retry_after_s
from appliance.remotes.metrics import RUNNING, WAITING, gauge
from tests import fake_vllm_wire as wire


def vllm(status: int, kind: str, message: str, param: str | None = None) -> dict[str, Any]:
    return wire.error_body(status, kind, message, param)


TOO_LONG = (
    "This model's maximum context length is 4096 tokens. However, your prompt contains 5000 input tokens"
)
LLAMA = {
    "error": {
        "code": 400,
        "type": "exceed_context_size_error",
        "message": "the request exceeds the available context size",
        "n_prompt_tokens": 5000,
        "n_ctx": 4096,
    }
}
OPENAI = {
    "error": {
        "message": "too many tokens",
        "type": "invalid_request_error",
        "code": "context_length_exceeded",
    }
}


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, vllm(400, "BadRequestError", TOO_LONG, "input_tokens"), "context"),
        (400, vllm(400, "BadRequestError", TOO_LONG), "context"),
        (400, vllm(400, "BadRequestError", "too long", "input_text"), "context"),
        (
            400,
            vllm(400, "BadRequestError", "max_tokens=9 cannot be greater than max_model_len=4."),
            "context",
        ),
        (400, LLAMA, "context"),
        (400, OPENAI, "context"),
        (413, OPENAI, "context"),
        (200, {"error": OPENAI["error"]}, "context"),
        (401, {"error": "Unauthorized"}, "key"),
        (403, {"detail": "Forbidden"}, "key"),
        (404, vllm(404, "NotFoundError", "The model `x` does not exist.", "model"), "model"),
        (404, {"error": {"message": "no", "code": "model_not_found"}}, "model"),
        (404, {"detail": "Not Found"}, "bad_request"),
        (429, {"error": {"message": "slow down"}}, "overload"),
        (503, vllm(503, "Service Unavailable", "queue is full"), "overload"),
        (500, vllm(500, "InternalServerError", "EngineCore died."), "server"),
        (500, vllm(500, "InternalServerError", TOO_LONG), "server"),
        (502, b"<html><head><title>502 Bad Gateway</title></head></html>", "server"),
        (501, b"", "server"),
        (422, vllm(422, "UnprocessableEntityError", "bad image"), "bad_request"),
        (400, vllm(400, "Bad Request", "field required"), "bad_request"),
        (200, vllm(500, "InternalServerError", "EngineCore died."), "server"),
        (200, vllm(503, "ServiceUnavailableError", "try again"), "overload"),
        (200, {"error": "boom"}, "server"),
    ],
)
def test_the_kind_of_an_error(status: int, body: Any, kind: str) -> None:
    assert normalise_error(status, body).kind == kind
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    assert normalise_error(status, raw) == normalise_error(status, body)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"error": {"message": "a\x1b[31mb\nc"}}, "a[31mb c"),
        ({"error": "Unauthorized"}, "Unauthorized"),
        ({"error": {"message": "Incorrect API key: sk-abc***********1234."}}, "Incorrect API key: [key]"),
        (b"sent Bearer sEcr3t-key", "sent [key]"),
        (b"<html><title>Bad\nGateway</title>", "a web page: Bad Gateway"),
        (b"", "HTTP 502 without a message"),
        (None, "HTTP 502 without a message"),
        (b"[1, 2]", "[1, 2]"),
        (b"[" * 100_000, "[" * 499 + "…"),
        ({"message": "top level"}, "top level"),
        ({"error": {"message": {"why": 1}}}, '{"why": 1}'),
        (b"\xff\xfe", "��"),
    ],
)  # fmt: skip
def test_the_message_is_clean_short_and_without_keys(body: Any, message: str) -> None:
    assert normalise_error(502, body).message == message


NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("", None),
        ("7", 7.0),
        ("0.5", 0.5),
        ("-3", 0.0),
        ("nan", None),
        ("inf", None),
        ("soon", None),
        ("Thu, 01 Jan 2026 00:01:30 GMT", 90.0),
        ("Thu, 01 Jan 2026 00:01:30 -0000", 90.0),
        ("Wed, 31 Dec 2025 00:00:00 GMT", 0.0),
    ],
)
def test_retry_after(value: str | None, seconds: float | None) -> None:
    assert retry_after_s(value, now=NOW) == seconds


def test_the_queue_is_read_by_name_and_summed_over_engines() -> None:
    text = (
        "# TYPE vllm:num_requests_waiting gauge\n"
        'vllm:num_requests_waiting{engine="0",model_name="a b"} 3.0\n'
        'vllm:num_requests_waiting{engine="1",model_name="a b"} 4.0 1760000000\n'
        'vllm:num_requests_waiting_by_reason{reason="capacity"} 99.0\n'
        "vllm:num_requests_running 2.0\n"
    )
    assert gauge(text, WAITING) == 7
    assert gauge(text, RUNNING) == 2


@pytest.mark.parametrize(
    "text", ["", "vllm:num_requests_waiting NaN", "vllm:num_requests_waiting x", "<html>"]
)
def test_an_unreadable_queue_is_unknown_not_zero(text: str) -> None:
    assert gauge(text, WAITING) is None
