"""When to look for a lost GPU, and when it is worth a try. Pure.

A look is cheap and wakes nothing: the bus and the driver. It comes after 30 s and then less and less often,
at last every five minutes. A try is a test load of a tiny model on it, at most one in ten minutes.
"""

from __future__ import annotations

from dataclasses import replace

from appliance.daemon.machine.losses import TRY_EVERY_S, Known, Seen, State

LOOK_S, LONGEST_LOOK_S = 30.0, 300.0
_AWAY = ("gone", "trouble")


def pause_s(looks: int) -> float:
    """Until the next look, after so many."""
    return min(LOOK_S * 2.0 ** min(looks, 10), LONGEST_LOOK_S)


def due(one: Known, now: float) -> bool:
    """It is time to look. What was lost just now is first left alone for a while."""
    return one.state == "lost" and now >= max(one.look_at, one.lost_at + LOOK_S)


def after_glance(one: Known, seen: Seen, now: float) -> tuple[Known, bool]:
    """After a look; True: it is worth a try.

    That it came back to the bus, or that its driver is well again, is news, and tried at once. What never
    looked bad, or sleeps, is tried because time has passed; and what sleeps is never woken just for that.
    """
    looks, came = one.looks + 1, one.seen in _AWAY and seen not in _AWAY
    rested = now - one.last_try >= TRY_EVERY_S
    worth = seen not in _AWAY and (came if one.tried_at is None else came and rested)
    worth = worth or (rested and seen in ("here", "unknown"))
    kept = one.seen if came and not worth else seen  # it stays news until it can be tried
    return replace(one, seen=kept, looks=looks, look_at=now + pause_s(looks)), worth


def tried(one: Known, works: bool, now: float) -> Known:
    """After a try."""
    state: State = "back" if works else "lost"
    return replace(one, state=state, tried_at=now)


def soon(one: Known, now: float) -> Known:
    """Something happened, such as a suspend: look now, and then often again."""
    return replace(one, looks=0, look_at=now) if one.state == "lost" else one
