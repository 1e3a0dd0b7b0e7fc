"""One row per request, in SQLite. No prompts and no replies."""

from appliance.journal.rows import Row, Today
from appliance.journal.speeds import CONDITIONS, Condition, Seen, read_speeds
from appliance.journal.store import Journal

__all__ = ["CONDITIONS", "Condition", "Journal", "Row", "Seen", "Today", "read_speeds"]
