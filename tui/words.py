"""Codes and numbers in words. The codes are those of the appliance; an unknown one is shown as it is."""

from __future__ import annotations

from appliance.units import GIB, duration

NA = "n/a"

_REASONS = {
    "local.queued": "waited in the queue",
    "local.pinned": "kept local by the caller",
    "local.fallback": "the remote failed",
    "local.cap": "daily cap of the remote reached",
    "remote.queue": "local queue too long",
    "remote.thermal": "slowed by heat",
    "remote.context": "over local context",
    "remote.loading": "the model was loading",
    "remote.engine_down": "the engine was down",
    "remote.not_local": "not a local model",
    "remote.battery": "on battery",
    "remote.faster": "the remote is faster",
    "remote.rule": "by a rule",
    "remote.forced": "asked for by the caller",
    "reject.queue_full": "queue full",
    "reject.rate": "over its rate",
    "reject.thermal": "too hot",
    "reject.unavailable": "nothing could serve it",
    "reject.local_only": "local only, and not servable here",
    "reject.deadline": "waited too long",
    "reject.context": "longer than any context",
    "reject.unsupported": "not supported",
    "reject.not_found": "no such model",
    "reject.key": "key refused",
}

_DEGRADED = {
    "cpu_fallback": "on the CPU",
    "fewer_layers": "fewer layers",
    "context_cut": "shorter context",
    "kv_quantised": "smaller KV",
    "other_quant": "other quant",
    "other_model": "other model",
    "throttled": "throttled",
    "truncated": "truncated",
}


def reason(code: str | None) -> str:
    """A reason code in words; `local.ok` says nothing, since nothing happened."""
    if code is None or code == "local.ok":
        return ""
    return _REASONS.get(code, code)


def degraded(codes: tuple[str, ...]) -> str:
    """What this answer lacks, in words. `remote` is left out: the route column says it."""
    return ", ".join(_DEGRADED.get(code, code) for code in codes if code != "remote")


def number(value: float | None, digits: int = 0) -> str:
    """A number with spaces between thousands."""
    return NA if value is None else f"{value:,.{digits}f}".replace(",", " ")


def gib(n_bytes: int | None, digits: int = 1) -> str:
    """Bytes as a bare number of GiB, for places that name the unit once."""
    return NA if n_bytes is None else f"{n_bytes / GIB:.{digits}f}"


def percent(value: float | None) -> str:
    """A share as `97 %`."""
    return NA if value is None else f"{value:.0f} %"


def seconds(milliseconds: float | None) -> str:
    """Milliseconds as `2.9 s`; not applicable is a dash."""
    if milliseconds is None:
        return "–"
    value = milliseconds / 1000
    return f"{value:.{1 if value < 100 else 0}f} s"


def ago(since: float | None, now: float) -> str:
    """The time since a Unix time."""
    return duration(None if since is None else max(0.0, now - since))


def place(url: str | None) -> str:
    """A URL without its scheme."""
    return NA if not url else url.partition("://")[2] or url
