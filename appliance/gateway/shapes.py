"""Errors in OpenAI's shape: `{"error": {message, type, param, code, appliance}}`, with headers that make
client SDKs retry exactly when that can help."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from appliance.errors import ApplianceError, Rejected, UnknownModel
from appliance.gateway.chunks import dumps
from appliance.gateway.failures import UpstreamFailed, UpstreamRefused

_TYPES = {
    400: "invalid_request_error", 401: "authentication_error", 403: "permission_error",
    404: "not_found_error", 405: "invalid_request_error", 408: "invalid_request_error",
    409: "conflict_error", 413: "invalid_request_error", 415: "invalid_request_error",
    422: "invalid_request_error", 429: "rate_limit_error", 501: "not_supported_error",
    503: "unavailable_error", 504: "timeout_error",
}  # fmt: skip
_DEFAULT_RETRY_S = 10


@dataclass(frozen=True, slots=True)
class Problem:
    """One error as the client gets it."""

    status: int
    message: str
    code: str
    reason: str
    """A `reject.*` code, or the reason under which a side was chosen that then failed."""
    param: str | None = None
    retry_after_s: int | None = None
    """1 to 120: above that SDKs give up. Set for every 429 and 503."""
    should_retry: bool | None = None
    """None: what SDKs do with this status is right."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """More fields of the error object, like n_prompt_tokens."""

    def body(self, appliance: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The error document."""
        error: dict[str, Any] = {
            "message": self.message,
            "type": _TYPES.get(self.status, "server_error"),
            "param": self.param,
            "code": self.code,
            **self.extra,
        }
        if appliance is not None:
            error["appliance"] = appliance
        return {"error": error}

    def headers(self) -> dict[str, str]:
        """Retry headers."""
        made: dict[str, str] = {}
        if self.status in (429, 503):
            seconds = min(120, max(1, self.retry_after_s or _DEFAULT_RETRY_S))
            made = {"Retry-After": str(seconds), "retry-after-ms": str(seconds * 1000)}
        if self.should_retry is not None:
            made["x-should-retry"] = str(self.should_retry).lower()
        return made


def problem_of(error: Exception, reason: str) -> Problem:
    """Any exception of the gateway as a Problem. `reason` is the one under which a side was chosen."""
    if isinstance(error, Rejected):
        return _rejected(error)
    if isinstance(error, UpstreamRefused):
        return _refused(error, reason)
    if isinstance(error, UpstreamFailed):
        status = 504 if error.outcome == "timeout" else 502
        code = (error.told and error.told.code) or error.code
        retry = False if error.answered and reason.startswith("local.") else None
        return Problem(status, error.message, code, reason, should_retry=retry)
    if isinstance(error, UnknownModel):
        return Problem(404, _text(error), "model_not_found", "reject.not_found", param="model")
    if isinstance(error, ApplianceError):
        retry = False if error.status >= 500 and error.status != 503 else None
        why = "reject.not_found" if error.status == 404 else "reject.unavailable"
        return Problem(error.status, _text(error), error.code, why, should_retry=retry)
    if isinstance(error, web.HTTPException):
        return _http(error)
    return Problem(500, "The appliance failed; its log says more.", "internal_error", reason)


def response(problem: Problem, headers: Mapping[str, str], appliance: Mapping[str, Any]) -> web.Response:
    """The error as an HTTP response; `headers` are those of the request's course."""
    return web.Response(
        status=problem.status,
        body=dumps(problem.body(appliance)),
        content_type="application/json",
        headers={**headers, **problem.headers()},
    )


def _text(error: ApplianceError) -> str:
    return " ".join(part for part in (error.message, error.cause, error.hint) if part)


def _rejected(error: Rejected) -> Problem:
    param = getattr(error, "param", None)
    code = "context_length_exceeded" if error.reason == "reject.context" else error.reason
    if (code, param) == ("reject.not_found", "model"):
        code = "model_not_found"
    deterministic = error.http_status >= 500 and error.reason in ("reject.local_only", "reject.deadline")
    return Problem(
        error.http_status,
        _text(error),
        code,
        error.reason,
        param=param,
        retry_after_s=error.retry_after_s,
        should_retry=False if deterministic else None,
    )


def _refused(error: UpstreamRefused, reason: str) -> Problem:
    status = error.told.status
    if error.side != "local" and status in (401, 403):
        # The client has no key of the remote: not its fault, and no retry helps.
        text = f"The remote refuses the appliance's key ({status})."
        return Problem(502, text, "remote_key", reason, should_retry=False)
    told = error.told
    why = "reject.unsupported" if error.side == "local" else reason
    return Problem(
        status,
        error.message,
        "context_length_exceeded" if error.too_long else told.code or told.type or error.code,
        "reject.context" if error.too_long else why,
        param=told.param,
        should_retry=False if status >= 500 else None,
        extra=told.numbers,
    )


def _http(error: web.HTTPException) -> Problem:
    texts = {
        404: "There is no such route.",
        405: "This route does not take that method.",
        413: "The body is larger than the appliance takes.",
    }
    reason = "reject.not_found" if error.status == 404 else "reject.unsupported"
    return Problem(error.status, texts.get(error.status, error.reason), reason, reason)
