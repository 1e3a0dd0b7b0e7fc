"""The flight recorder's timeline: samples, events, decisions and requests in one order of time."""

from appliance.journal.timeline.values import (
    COLUMNS,
    CPU,
    GPU,
    MACHINE,
    STATES,
    Decided,
    Entry,
    Moment,
    Point,
    moment_of,
    to_line,
)

__all__ = [
    "COLUMNS",
    "CPU",
    "GPU",
    "MACHINE",
    "STATES",
    "Decided",
    "Entry",
    "Moment",
    "Point",
    "moment_of",
    "to_line",
]
