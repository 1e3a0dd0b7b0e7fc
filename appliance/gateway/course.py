"""The truth about one request while it runs: headers, `appliance` object, receipt and journal row agree,
because all of them are read from here. It never holds a prompt or a reply."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from appliance.gateway.access import Caller
from appliance.gateway.ports import Conditions, Outcome, Served
from appliance.gateway.speeds import Sample
from appliance.journal import Row
from appliance.routing import Lane
from appliance.text import clean_line

Route = Literal["none", "local", "remote"]
_ASKED_FOR = ("remote.forced", "remote.rule")
"""Reasons under which a remote answer is what was asked for, not less."""


@dataclass(slots=True)
class Course:
    """One request from arrival to its end."""

    path: str
    lane: Lane
    caller: Caller
    client_request_id: str | None = None
    user_agent: str | None = None
    request_id: str = field(default_factory=lambda: f"req_{secrets.token_hex(12)}")
    started_at: float = field(default_factory=time.time)
    arrived: float = field(default_factory=time.perf_counter)
    asked_model: str | None = None
    served: Served | None = None
    route: Route = "none"
    reason: str = "reject.unsupported"
    model: str | None = None
    degraded: tuple[str, ...] = ()
    status: int | None = None
    """None while it runs."""
    delivered: bool = False
    """A stream was written to its end: a client that hangs up now has everything."""
    queue_s: float | None = None
    upstream_at: float | None = None
    first_at: float | None = None
    last_at: float | None = None
    ended_at: float | None = None
    usage: Mapping[str, Any] | None = None
    timings: Mapping[str, Any] | None = None
    conditions: Conditions = field(default_factory=Conditions)
    """Of the machine when a local reply ended."""
    streams: int | None = None
    """The most local requests at once while this one ran here."""

    def to_local(self, reason: str, degraded: tuple[str, ...]) -> None:
        """The local side is about to answer."""
        self.route, self.reason = "local", reason
        known = self.served.degraded if self.served else ()
        self.model = self.served.ref if self.served else None
        self.degraded = tuple(dict.fromkeys((*known, *degraded)))

    def to_remote(self, reason: str, model: str) -> None:
        """A remote is about to answer, under its own name of the model."""
        self.route, self.reason, self.model = "remote", reason, model
        self.degraded = () if reason in _ASKED_FOR else ("remote",)

    def waits(self, reason: str) -> None:
        """It has been decided where it goes; nobody answers yet."""
        self.reason = reason

    def refused(self, reason: str) -> None:
        """Nobody answers."""
        self.route, self.reason, self.model, self.degraded = "none", reason, None, ()

    def answered_by(self, model: object) -> None:
        """The name that the answering side uses for itself."""
        if isinstance(model, str) and model:
            self.model = clean_line(model, 200)

    def appliance(self) -> dict[str, Any]:
        """The `appliance` object of bodies, streams and receipts."""
        made: dict[str, Any] = {
            "request_id": self.request_id,
            "route": self.route,
            "reason": self.reason,
            "model": self.model,
        }
        if self.degraded:
            made["degraded"] = list(self.degraded)
        return made

    def headers(self, *, pending: bool = False) -> dict[str, str]:
        """Response headers; `pending` while no side is settled."""
        made = {"X-Request-Id": self.request_id, "X-Appliance-Route": "pending" if pending else self.route}
        made["X-Appliance-Reason"] = "pending" if pending else self.reason
        if pending or self.model:
            made["X-Appliance-Model"] = "pending" if pending else _header(self.model or "")
        if pending or self.degraded:
            made["X-Appliance-Degraded"] = "pending" if pending else ", ".join(self.degraded)
        return made

    def receipt(self) -> dict[str, Any]:
        """What `/v1/receipts/<id>` answers."""
        return {
            "object": "appliance.receipt",
            "appliance": self.appliance(),
            "client_request_id": self.client_request_id,
            "created": int(self.started_at),
            "path": self.path,
            "lane": self.lane,
            "asked_model": self.asked_model,
            "status": self.status,
            "tokens_in": self.tokens_in,
            "tokens_out": self.tokens_out,
            "queue_ms": _ms(self.queue_s),
            "ttft_ms": _ms(self.ttft_s),
            "tokens_per_second": self.tokens_per_second,
            "total_ms": _ms(self.total_s),
        }

    def row(self) -> Row:
        """What the journal keeps."""
        return Row(
            request_id=self.request_id,
            started_at=self.started_at,
            model=self.asked_model,
            served_model=self.model,
            route=self.route,
            reason=self.reason,
            lane=self.lane,
            path=self.path,
            status=self.status if self.status is not None else 500,
            tokens_in=self.tokens_in,
            tokens_out=self.tokens_out,
            queue_ms=_ms(self.queue_s),
            ttft_ms=_ms(self.ttft_s),
            tokens_per_second=self.tokens_per_second,
            total_ms=_ms(self.total_s),
            degraded=",".join(self.degraded) or None,
            client=self.user_agent,
            **self._here(),
        )

    def _here(self) -> dict[str, Any]:
        """What the journal keeps of a local reply only: a remote's speed says nothing about this machine."""
        if self.route != "local":
            return {}
        now = self.conditions
        return {
            "thermal": now.thermal, "power": now.power, "streams": self.streams, "plan": now.plan,
            "places": ",".join(now.places) or None,
        }  # fmt: skip

    def outcome(self, running: int, *, ok: bool) -> Outcome:
        """What the speed baseline learns from it."""
        return Outcome(
            self.tokens_in,
            self.tokens_out,
            self.tokens_per_second,
            self.answer_s,
            running,
            ok,
            self.streams,
        )

    def sample(self) -> Sample:
        """What predictions for later requests learn from it."""
        first = self.answer_s
        n, per_s = (_positive(self.timings, name) for name in ("prompt_n", "prompt_per_second"))
        prefill = n / per_s if n is not None and per_s is not None else first
        return Sample(self.tokens_in, prefill, first, self.tokens_out, self.tokens_per_second)

    @property
    def answer_s(self) -> float | None:
        """From the request to the answering side to its first delta."""
        if self.first_at is None or self.upstream_at is None:
            return None
        return self.first_at - self.upstream_at

    @property
    def tokens_in(self) -> int | None:
        """Of the prompt, as the answering side counts."""
        return _count(self.usage, "prompt_tokens")

    @property
    def tokens_out(self) -> int | None:
        """Of the reply, as the answering side counts."""
        return _count(self.usage, "completion_tokens")

    @property
    def ttft_s(self) -> float | None:
        """From arrival to the first delta, queue included."""
        return None if self.first_at is None else self.first_at - self.arrived

    @property
    def total_s(self) -> float | None:
        """From arrival to the end."""
        return None if self.ended_at is None else self.ended_at - self.arrived

    @property
    def tokens_per_second(self) -> float | None:
        """Decode speed: the engine's own figure, else tokens after the first over their time."""
        own = _positive(self.timings, "predicted_per_second")
        if own is not None:
            return own
        if self.first_at is None or self.last_at is None or (self.tokens_out or 0) < 2:
            return None
        span = self.last_at - self.first_at
        return ((self.tokens_out or 0) - 1) / span if span > 0 else None


def _count(usage: Mapping[str, Any] | None, name: str) -> int | None:
    value = (usage or {}).get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _positive(timings: Mapping[str, Any] | None, name: str) -> float | None:
    value = (timings or {}).get(name)
    return float(value) if isinstance(value, (int, float)) and 0 < value < math.inf else None


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)


def _header(text: str) -> str:
    """Header values are Latin-1 without line breaks; anything else of a foreign name becomes `?`."""
    return clean_line(text, 200).encode("ascii", "replace").decode("ascii")
