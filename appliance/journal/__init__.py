"""One row per request, and what happened to engines, in SQLite. No prompts and no replies."""

from appliance.journal.events import Event
from appliance.journal.rows import Row, Today
from appliance.journal.speeds import CONDITIONS, Condition, Seen, read_speeds
from appliance.journal.store import Journal

__all__ = ["CONDITIONS", "Condition", "Event", "Journal", "Row", "Seen", "Today", "read_speeds"]
