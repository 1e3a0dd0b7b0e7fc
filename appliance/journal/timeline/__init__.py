"""The flight recorder's timeline: samples, events, decisions and requests in one order of time."""

from appliance.journal.timeline.history import History, Series
from appliance.journal.timeline.reading import Page, look_at_timeline, read_timeline, timeline_in
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
    "History",
    "Moment",
    "Page",
    "Point",
    "Series",
    "look_at_timeline",
    "moment_of",
    "read_timeline",
    "timeline_in",
    "to_line",
]
