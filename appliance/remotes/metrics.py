"""The two numbers that count in vLLM's /metrics. Metrics come and go with versions: absence is None."""

from __future__ import annotations

import math
import re

RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"
_LINE = re.compile(
    r"^(?P<name>[A-Za-z_:][\w:]*)(?:\{[^\n]*\})?[ \t]+(?P<value>\S+)(?:[ \t]+-?\d+)?[ \t]*$", re.MULTILINE
)


def gauge(text: str, name: str) -> int | None:
    """The sum of a gauge over its labels (one line per engine); None when no line can be read."""
    found: list[float] = []
    for line in _LINE.finditer(text):
        if line["name"] != name:
            continue
        try:
            value = float(line["value"])
        except ValueError:
            continue
        if math.isfinite(value) and value >= 0:
            found.append(value)
    return round(sum(found)) if found else None
