"""Linux: an inhibitor lock of logind, by `systemd-inhibit` (or elogind's), see systemd-inhibit(1).

It takes the lock first and runs a command then, so a `cat` that answers is the proof of the lock. `cat` ends
when its stdin is closed, which the end of this process does, and the lock goes with it.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass

from appliance.daemon.machine.inhibitors.child import Child
from appliance.daemon.machine.inhibitors.values import REASON, Hold, NotHeld

PROGRAMS = ("systemd-inhibit", "elogind-inhibit")
ALL, IDLE = "sleep:idle", "idle"
_ANSWER_S = 10.0
_REFUSED = ("access denied", "interactive authentication", "permission denied", "not authorized")
"""How polkit says no, whatever the version. Without a local session (SSH, a service) that is its default
for `sleep`."""
_BUSY = "already running"
"""The machine is on its way to sleep: after that it can be asked again."""
_ASK_AGAIN_S = 600.0


@dataclass(frozen=True, slots=True)
class LogindHold:
    """A lock, as long as the child lives."""

    child: Child
    how: str
    but: str | None

    async def lost(self) -> str:
        return f"{self.how}: {await self.child.ended()}"

    async def release(self) -> None:
        await self.child.end()


class Logind:
    """Asks for both locks, and for `idle` alone where polkit refuses `sleep`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, answer_s: float = _ANSWER_S) -> None:
        self._clock = clock
        self._answer_s = answer_s
        self._refusal: str | None = None
        self._ask_again_at = float("-inf")

    async def take(self) -> Hold:
        program = next((found for name in PROGRAMS if (found := shutil.which(name)) is not None), None)
        if program is None:
            raise NotHeld(f"{PROGRAMS[0]} is not installed here", lasting=True)
        if self._refusal is None or self._clock() >= self._ask_again_at:
            self._refusal = None
            try:
                return await self._locked(program, ALL)
            except NotHeld as refused:
                if not any(words in refused.why.lower() for words in _REFUSED):
                    raise
                self._refusal, self._ask_again_at = refused.why, self._clock() + _ASK_AGAIN_S
        return await self._locked(program, IDLE)

    async def _locked(self, program: str, what: str) -> Hold:
        name = program.rpartition("/")[2]
        child = await Child.start(
            program, f"--what={what}", "--mode=block", "--who=llama-appliance", f"--why={REASON}", "cat"
        )
        try:
            if await child.echoes(self._answer_s):
                but = None if what == ALL else f"only idle sleep is kept off, not `suspend`: {self._refusal}"
                return LogindHold(child, f"{name} ({what})", but)
            why = f"{name}: {await child.ended()}"
        except TimeoutError:
            await child.end()
            raise NotHeld(f"{name} does not answer", lasting=False) from None
        except BaseException:
            await child.end()
            raise
        await child.end()
        raise NotHeld(why, lasting=_BUSY not in why)
