"""What a change of the served model's snapshot means as an event for the journal. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from appliance.daemon.served import ServingSnapshot
from appliance.engines import EngineSnapshot

_SERVES = ("ready", "busy")
_ANEW = {
    "replanned": "gets another plan",
    "recycled": "is started afresh",
    "resumed": "is started again after a suspend",
    "gpu_back": "goes back to its GPU",
}
"""Why a model is loaded again while it is served, by the code of the note."""


@dataclass(frozen=True, slots=True)
class Happening:
    """An event, before it has a number: the arguments of `Journal.note`."""

    kind: str
    """`loaded unloaded crashed restarted failed replanned recycled resumed gpu_lost gpu_back`."""
    ref: str | None
    text: str
    detail: str | None = None


def happenings(before: ServingSnapshot, now: ServingSnapshot) -> tuple[Happening, ...]:
    """What happened between two snapshots of one model's serving, in order."""
    if now.ref is None:
        return ()
    ref = now.ref.ref
    return tuple(
        one
        for found in (_replanned, _lost, _crashed, _served, _failed, _unloaded)
        for one in found(ref, before, now)
    )


def _replanned(ref: str, before: ServingSnapshot, now: ServingSnapshot) -> Iterator[Happening]:
    if now.replanned is not None and now.replanned != before.replanned:
        code = now.replanned.code
        text = f"{ref} {_ANEW.get(code, _ANEW['replanned'])}."
        yield Happening(code if code in _ANEW else "replanned", ref, text, now.replanned.detail)


def _lost(ref: str, before: ServingSnapshot, now: ServingSnapshot) -> Iterator[Happening]:
    known = before.lost.key if before.lost is not None else None
    if now.lost is not None and now.lost.key != known:
        text = f"{ref} does without {now.lost.title}."
        yield Happening("gpu_lost", ref, text, _joined(now.lost.message, now.lost.fix))


def _crashed(ref: str, before: ServingSnapshot, now: ServingSnapshot) -> Iterator[Happening]:
    crash = now.engine.crash if now.engine is not None else None
    known = before.engine.crash if before.engine is not None else None
    if crash is not None and (known is None or known.at != crash.at):
        yield Happening("crashed", ref, f"{ref}: {crash.message}", _joined(crash.cause, crash.hint))


def _served(ref: str, before: ServingSnapshot, now: ServingSnapshot) -> Iterator[Happening]:
    engine = now.engine
    if engine is None or now.state not in _SERVES or engine.ready_at is None:
        return
    if before.engine is not None and before.engine.ready_at == engine.ready_at and before.state in _SERVES:
        return
    again = engine.restarts > 0 and before.loaded_since == now.loaded_since
    took = None if engine.started_at is None else f"after {engine.ready_at - engine.started_at:.1f} s"
    text = f"{ref} is back." if again else f"{ref} is loaded."
    yield Happening("restarted" if again else "loaded", ref, text, _joined(_figures(engine), took, mark=", "))


def _failed(ref: str, before: ServingSnapshot, now: ServingSnapshot) -> Iterator[Happening]:
    if now.state != "failed" or before.state == "failed":
        return
    error, engine = now.error, now.engine
    if error is not None:
        yield Happening("failed", ref, f"{ref}: {error.message}", _joined(error.cause, error.hint))
    elif engine is not None:
        yield Happening(
            "failed", ref, f"{ref}: {engine.error or 'It failed.'}", _joined(engine.cause, engine.hint)
        )


def _unloaded(ref: str, before: ServingSnapshot, now: ServingSnapshot) -> Iterator[Happening]:
    if now.state == "absent" and before.state not in ("absent", "failed") and before.ref is not None:
        why = now.error.message if now.error is not None else None
        yield Happening("unloaded", before.ref.ref, f"{before.ref.ref} is unloaded.", why)


def _figures(engine: EngineSnapshot) -> str:
    parts: list[str | None] = [engine.build]
    if engine.gpu_layers is not None and engine.n_layer is not None:
        parts.append(f"{engine.gpu_layers} of {engine.n_layer + 1} layers on the GPU")
    if engine.ctx is not None and engine.parallel is not None:
        parts.append(f"{engine.parallel} x {engine.ctx} tokens")
    return _joined(*parts, mark=", ") or ""


def _joined(*parts: str | None, mark: str = " ") -> str | None:
    return mark.join(part for part in parts if part) or None
