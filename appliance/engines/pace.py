"""How long an engine may be silent before it hangs: by how it was seen to read prompts, and its batch.

The longest step that a healthy engine makes without any sign is one batch of a prompt. Its counters move
after each batch, and nothing else of it does.
"""

from __future__ import annotations

import re
from collections import deque

from appliance.engines.values import EngineKind, Launch

_PROMPT = re.compile(r"prompt eval time\s*=\s*([\d.]+) ms /\s*(\d+) tokens")
_ENOUGH_TOKENS = 64
"""A shorter prompt says little about the speed of a whole batch."""
_KEPT = 8
DEFAULT_BATCH = 2048
"""llama.cpp's `n_batch` where the plan names none."""
UNKNOWN_S = 900.0
"""While no speed is known: at 2.3 tokens a second, a software device's, a whole batch takes as long."""
LEAST_S, MOST_S = 60.0, 1_800.0
COUNTLESS_LEAST_S = 300.0
"""For an engine without counters: a client that reads slowly looks the same as an engine that hangs."""
_SLOWER = 10.0
"""So much slower than it was seen a batch may be: deep in a long context, beside others, throttled."""
_SURELY = 2.0


class Pace:
    """The prompt speeds that an engine's log told, over its restarts. Fed by another thread."""

    def __init__(self) -> None:
        self._seen: deque[float] = deque(maxlen=_KEPT)

    def feed(self, line: str) -> None:
        """Take one line of the log."""
        if (match := _PROMPT.search(line)) is not None:
            took_s, tokens = float(match[1]) / 1000, int(match[2])
            if tokens >= _ENOUGH_TOKENS and took_s > 0:
                self._seen.append(tokens / took_s)

    @property
    def tokens_per_s(self) -> float | None:
        """The slowest of the last prompts; None while none was long enough."""
        return min(tuple(self._seen), default=None)


def counts(kind: EngineKind) -> bool:
    """Whether this kind tells its counters (`/metrics`)."""
    return kind != "llama-cpp-python"


def longest_step(kind: EngineKind, launch: Launch) -> int:
    """Tokens of the longest piece of work without a sign."""
    plan = launch.plan
    if not counts(kind):
        return plan.ctx  # nothing shows before the first token
    flags = plan.flags
    given = next((flags[at + 1] for at, flag in enumerate(flags[:-1]) if flag in ("-b", "--batch-size")), "")
    return min(int(given) if given.isdecimal() else DEFAULT_BATCH, plan.ctx * plan.parallel)


def patience_s(kind: EngineKind, launch: Launch, tokens_per_s: float | None) -> float:
    """Seconds of silence after which the engine hangs."""
    step = longest_step(kind, launch)
    least = LEAST_S if counts(kind) else COUNTLESS_LEAST_S
    if launch.mmproj is not None or tokens_per_s is None:
        least = UNKNOWN_S  # pictures are read beside the counters, and no line tells how fast
    if tokens_per_s is None:
        return least
    batch_s = step / tokens_per_s
    return max(least, min(_SLOWER * batch_s, MOST_S), _SURELY * batch_s)
