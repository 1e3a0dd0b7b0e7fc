"""`GET /api/history`: what the devices were like over the last hour or week, for curves and tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlencode

from appliance.client.fields import flag, mapping, number, text, whole

Value = float | str | bool | None


@dataclass(frozen=True, slots=True)
class DeviceHistory:
    """One device: `gpu:<id>`, `cpu` or `machine`."""

    device: str
    name: str | None
    at: tuple[float, ...]
    """Unix seconds of each row, rising. A time in which nothing was seen has no row."""
    columns: Mapping[str, tuple[Value, ...]]
    """By name, as many values as `at` has; None is unknown. `state` is text, `plugged` yes or no."""

    def numbers(self, column: str) -> tuple[float | None, ...]:
        """A column of figures; None throughout when the device has none such."""
        values = self.columns.get(column, (None,) * len(self.at))
        return tuple(number(value) for value in values)

    @classmethod
    def parse(cls, document: object) -> Self:
        """Rows that are odd or have no time are passed over."""
        doc = mapping(document)
        names = [text(name) or "" for name in _list(doc.get("columns"))]
        spot = names.index("at") if "at" in names else None
        rows = [
            row
            for row in map(_list, _list(doc.get("rows")))
            if spot is not None and len(row) == len(names) and number(row[spot]) is not None
        ]
        at = tuple(float(row[spot]) for row in rows) if spot is not None else ()
        columns = {
            name: tuple(_value(name, row[place]) for row in rows)
            for place, name in enumerate(names)
            if place != spot
        }
        return cls(text(doc.get("device")) or "", text(doc.get("name")), at, columns)


@dataclass(frozen=True, slots=True)
class HistoryDocument:
    """All devices that were seen."""

    step: int | None
    """Seconds that a row stands for; at 1 it is what was seen, five seconds apart while no request runs."""
    since: float | None
    until: float | None
    devices: tuple[DeviceHistory, ...]

    def of(self, device: str) -> DeviceHistory | None:
        """One device; None when it was not seen."""
        return next((one for one in self.devices if one.device == device), None)

    @classmethod
    def parse(cls, document: object) -> Self:
        """Read the document; anything missing or odd becomes None or empty."""
        doc: Mapping[str, Any] = mapping(document)
        devices = tuple(map(DeviceHistory.parse, _list(doc.get("devices"))))
        return cls(whole(doc.get("step")), number(doc.get("from")), number(doc.get("to")), devices)


def path_of(seconds: int, step: int | None, device: str) -> str:
    """Where it is asked for."""
    asked = {"seconds": seconds, "step": step or "auto"} | ({"device": device} if device else {})
    return "/api/history?" + urlencode(asked)


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _value(name: str, value: object) -> Value:
    if name == "state":
        return text(value)
    return flag(value) if name == "plugged" else number(value)
