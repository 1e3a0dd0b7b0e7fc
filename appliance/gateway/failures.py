"""What an upstream says went wrong, read once for both sides and in every dialect, and safe to pass on:
cleaned, without keys."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from appliance.errors import ApplianceError
from appliance.remotes import FailureKind, normalise_error
from appliance.text import clean_line

_NUMBERS = ("n_prompt_tokens", "n_ctx")
_REQUESTS_FAULT = re.compile(
    r"input is not supported|parse error|parsing failed|json\.exception|\bjinja\b|chat template"
    r"|^failed to (parse|initialize samplers|tokenize|load image|load audio|decode image)"
    r"|^unable to generate parser|^unsupported |^invalid (request|argument|image|audio)",
    re.IGNORECASE,
)
_ONE_PIECE = re.compile(
    r"^(?:input|Requested tokens) \((\d{1,9})(?: tokens)?\) (?:is too large to process.*|exceed )"
    r"batch size(?:: | of )(\d{1,9})"
)
"""Of a text that becomes a vector: the engine works on it at once."""
_SHORTEST_SECRET = 4
"""Characters; hiding a shorter one would take words apart."""


@dataclass(frozen=True, slots=True)
class Told:
    """An upstream's error."""

    kind: FailureKind
    message: str
    status: int
    """Of the answer; of an error event, the one that it stands for."""
    code: str | None = None
    type: str | None = None
    param: str | None = None
    numbers: Mapping[str, int] = field(default_factory=dict)
    """How long the prompt really is, and what would fit, where the side says so."""

    def judged(self) -> Told:
        """An engine's error with the status that it should have: llama-server answers 500, too, when it is
        the request that is at fault."""
        if self.status >= 500 and (found := _ONE_PIECE.search(self.message)) is not None:
            return self._too_long(int(found[1]), int(found[2]))
        if self.status < 500 or not (
            self.type == "invalid_request_error" or _REQUESTS_FAULT.search(self.message)
        ):
            return self
        return replace(self, status=400, kind="bad_request", type="invalid_request_error")

    def _too_long(self, tokens: int, most: int) -> Told:
        return replace(
            self,
            status=400,
            kind="context",
            type="exceed_context_size_error",
            message=f"The input has {tokens} tokens; this model takes at most {most} of one text.",
            numbers={"n_prompt_tokens": tokens, "n_ctx": most},
        )

    def without(self, secret: str) -> Told:
        """The same with `secret` hidden, wherever the upstream repeats it."""

        def hide(text: str | None) -> str | None:
            return None if text is None else text.replace(secret, "[key]")

        return replace(
            self,
            message=self.message.replace(secret, "[key]"),
            code=hide(self.code),
            type=hide(self.type),
            param=hide(self.param),
        )


def read(status: int, body: bytes | Mapping[str, Any]) -> Told:
    """Understand an error answer, or with status 200 the error event of a stream. Never raises."""
    document: object = body
    if isinstance(body, bytes):
        try:
            document = json.loads(body)
        except (ValueError, RecursionError):
            document = None
    found = normalise_error(status, document if isinstance(document, Mapping) else body)
    error = document.get("error") if isinstance(document, Mapping) else None
    fields = error if isinstance(error, Mapping) else {}
    if status == 200:
        code = fields.get("code")
        meant = code if _is_number(code) else 400 if found.kind == "context" else 500
        status = int(meant or 500)
    return Told(
        found.kind,
        found.message,
        status,
        code=_word(fields.get("code")),
        type=_word(fields.get("type")),
        param=_word(fields.get("param")),
        numbers={name: fields[name] for name in _NUMBERS if _is_number(fields.get(name))},
    )


def _word(value: object) -> str | None:
    """A short text of a stranger, cleaned in the way in which messages are."""
    if not isinstance(value, str) or not value:
        return None
    return clean_line(normalise_error(500, {"error": {"message": value}}).message, 100)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class UpstreamError(ApplianceError):
    """A side did not answer."""

    def __init__(self, outcome: str, message: str, told: Told | None, retry_after_s: float | None) -> None:
        super().__init__(clean_line(message))
        self.outcome = outcome
        """For the breaker: refused timeout reset 5xx 4xx, or `loading` for a state."""
        self.told = told
        self.retry_after_s = retry_after_s
        """Seconds that the side asks to be left alone."""

    def reword(self, message: str) -> None:
        """Say it with what the one who catches it knows more."""
        self.message = clean_line(message)
        self.args = (self.message,)

    def conceal(self, secret: str) -> None:
        """Hide the key that was sent: some servers repeat it in what they refuse."""
        if len(secret) >= _SHORTEST_SECRET:
            self.message = self.message.replace(secret, "[key]")
            self.args = (self.message,)
            self.told = self.told.without(secret) if self.told else None


class UpstreamRefused(UpstreamError):
    """A side answered with a 4xx (or 501): the request itself can't be served there. Never fails over."""

    code = "upstream_refused"

    def __init__(self, told: Told, *, side: str, retry_after_s: float | None = None) -> None:
        super().__init__("4xx", told.message, told, retry_after_s)
        self.told: Told
        self.side = side

    @property
    def too_long(self) -> bool:
        """The prompt is longer than that side's context."""
        return self.told.kind == "context"

    @property
    def prompt_tokens(self) -> int | None:
        """How long the prompt really is, where the side says so."""
        return self.told.numbers.get("n_prompt_tokens")


class UpstreamFailed(UpstreamError):
    """A side failed. `started`: after the first delta, so that no other side may answer any more.
    `answered`: in its own words, so its process lives: of an engine, no reason to send the prompt away."""

    status = 502
    code = "upstream_failed"

    def __init__(
        self,
        outcome: str,
        message: str,
        *,
        started: bool = False,
        answered: bool = False,
        told: Told | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(outcome, message, told, retry_after_s)
        self.started = started
        self.answered = answered
