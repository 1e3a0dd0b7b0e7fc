"""One row per request, in SQLite. No prompts and no replies."""

from appliance.journal.rows import Row, Today
from appliance.journal.store import Journal

__all__ = ["Journal", "Row", "Today"]
