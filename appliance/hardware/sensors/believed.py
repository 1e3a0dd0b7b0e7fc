"""Which figures of a sensor are believed: what no device has is unknown, never passed on as a reading."""

from __future__ import annotations

MOST_WATTS, MOST_MHZ, MOST_RPM = 3000.0, 20_000.0, 30_000.0
LEAST_LIMIT = 50.0
"""Degrees Celsius: what slows down or shuts down below that says nonsense, and would stop local work."""


def degrees(celsius: float | None) -> float | None:
    """A temperature; a sensor that says 0 or 200 degrees says nothing."""
    return float(celsius) if celsius is not None and 0 < celsius < 150 else None


def milli_degrees(milli: int | None) -> float | None:
    """The same as the kernel writes it."""
    return None if milli is None else degrees(milli / 1000)


def limit(celsius: float | None) -> float | None:
    """A temperature at which a device begins to save itself."""
    return celsius if celsius is not None and celsius >= LEAST_LIMIT else None


def watts(value: int | None, per_watt: float) -> float | None:
    """Power, or a limit of it; 0 is one that is not told or switched off."""
    return value / per_watt if value is not None and 0 < value / per_watt <= MOST_WATTS else None


def mhz(value: float | None, per_mhz: float = 1) -> float | None:
    """A clock; 0 is a unit that stands still, and has none then."""
    return value / per_mhz if value is not None and 0 < value / per_mhz <= MOST_MHZ else None
