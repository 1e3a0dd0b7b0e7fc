"""Which calls cost the sensor child its life, so that the next one leaves them out. Pure.

| what happened | what follows |
| --- | --- |
| a call ended two children within ten minutes | it is left out for three minutes; all other sensors go on |
| the same of a call that all of NVML needs | for five seconds: a driver that was reset may soon be back |
| tried again, it ends a child at once | it is left out for twice as long, an hour at most |
| tried again, it does no harm for ten minutes | forgotten |

A call is its name and its device: what hangs on one GPU may be well on the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from appliance.hardware.troubles import NEEDED

STRIKES = 2
_REMEMBERED_S = 600.0
_FIRST_S, _FIRST_OF_NEEDED_S = 180.0, 5.0
_LONGEST_S = 3600.0
_MOST = 32


@dataclass(frozen=True, slots=True)
class _Culprit:
    strikes: int = 0
    last_at: float = 0.0
    left_out_s: float = 0.0
    """How long it is, or was last, left out."""
    until: float = 0.0


@dataclass(frozen=True, slots=True)
class Culprits:
    """The calls under suspicion, by name."""

    calls: Mapping[str, _Culprit] = field(default_factory=dict)

    def after(self, blame: str | None, now: float) -> Culprits:
        """A child ended that was to go on: in that call, or in none."""
        kept = {
            call: one for call, one in self.calls.items() if now - max(one.until, one.last_at) < _REMEMBERED_S
        }
        if blame is not None:
            one = kept.pop(blame, _Culprit())
            one = replace(one, strikes=one.strikes + 1, last_at=now)
            if one.strikes >= STRIKES:
                first_s = _FIRST_OF_NEEDED_S if blame.partition(" ")[0] in NEEDED else _FIRST_S
                left_out_s = min(one.left_out_s * 2 or first_s, _LONGEST_S)
                one = replace(one, left_out_s=left_out_s, until=now + left_out_s)
            kept[blame] = one
        return Culprits(dict(list(kept.items())[-_MOST:]))

    def skips(self, now: float) -> dict[str, float]:
        """What the next child leaves out, and for how many seconds."""
        return {call: one.until - now for call, one in self.calls.items() if one.until > now}
