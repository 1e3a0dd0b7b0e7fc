"""How a model stands for requests: what its engine is, whether a request loads it, and why not. Pure."""

from __future__ import annotations

from appliance.daemon.pool.seat import Seat
from appliance.daemon.served import ServingSnapshot
from appliance.routing import COLD


def state_of(seat: Seat | None, *, loadable: bool, now: float) -> str:
    """The state that the router sees. `loadable`: a request may load it.

    `cold`: a request loads it. So is one whose engine is being stopped, and one whose load failed some time
    ago.
    """
    if seat is None:
        return COLD if loadable else "absent"
    state = seat.serving.snapshot.state
    if state in ("ready", "busy") and seat.serving.endpoint is None:
        state = "stopping"
    if not loadable:
        return state
    if state in ("absent", "stopping") or (state == "failed" and seat.retry_at <= now):
        return COLD
    return state


def why_not(snapshot: ServingSnapshot) -> str:
    """What a refused client should read: what happened to the engine, and what to do."""
    if snapshot.state not in ("failed", "absent"):
        return ""
    engine, error = snapshot.engine, snapshot.error
    parts: tuple[str | None, ...] = ()
    if error is not None:
        parts = (error.message, error.cause, error.hint)
    elif snapshot.state == "absent" and snapshot.ref is not None:
        ref = snapshot.ref.ref
        parts = (
            f"{ref} was unloaded.",
            f"`appliance models load {ref}` loads it again, and so does key r in `appliance`.",
        )
    elif engine is not None:
        parts = (engine.error, engine.cause, engine.hint)
    return " ".join(part for part in parts if part)
