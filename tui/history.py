"""The last samples of what the dashboard draws as trend lines. A missing sample is a gap, not a zero."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from appliance.client import StatusSnapshot

KEPT = 240
"""Samples per line; at one a second, more than the widest line shows."""

Series = tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class History:
    """Samples by name, oldest first; all series have the same length."""

    series: Mapping[str, Series] = field(default_factory=dict)
    length: int = 0

    def get(self, name: str) -> Series:
        """The samples of one line; empty when it never had any."""
        return self.series.get(name, ())

    def add(self, shot: StatusSnapshot | None) -> History:
        """The history with one more sample of everything; None (no contact) is a gap in all lines."""
        now = _sample(shot) if shot is not None else {}
        length = min(self.length + 1, KEPT)
        names = [name for name, old in self.series.items() if any(v is not None for v in old) or name in now]
        series = {name: (*self.series[name], now.get(name))[-KEPT:] for name in names}
        for name, value in now.items():
            series.setdefault(name, (*(None,) * (length - 1), value))
        return History(series, length)


def _sample(shot: StatusSnapshot) -> dict[str, float | None]:
    values: dict[str, float | None] = {"cpu": shot.host.cpu_percent}
    for gpu in shot.gpus[:8]:
        values[f"{gpu.id}.utilisation"] = gpu.utilisation
        values[f"{gpu.id}.power"] = gpu.power
        values[f"{gpu.id}.temperature"] = gpu.temperature
    return values
