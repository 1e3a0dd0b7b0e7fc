"""How high each panel is. Pure, so that no size leaves a gap or pushes the footer off the screen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

PanelId = Literal["engine", "others", "gpu", "host", "requests", "downloads", "notes"]

ROWS_AROUND = 3
"""Header, notice and footer."""
MIN_REQUESTS = 4
"""A frame, the titles and one request."""
_ONE_LINE = 3


def heights(total: int, wants: Mapping[PanelId, int]) -> dict[PanelId, int]:
    """Rows for each panel of a screen with `total` rows; they add up to all but header, notice and footer.

    `wants` are the rows with frame that each panel would like, 0 when it has nothing to show. Requests get
    what is left. Where that is too little, hints go first: notes, then downloads, shrink to one line; then
    notes, host, GPU, downloads and the other models go; at last the engine panel is cut.
    """
    body = max(0, total - ROWS_AROUND)
    out: dict[PanelId, int] = dict(wants)
    out["requests"] = 0

    def missing() -> int:
        return MIN_REQUESTS - (body - sum(out.values()))

    steps: tuple[tuple[PanelId, int], ...] = (
        ("notes", _ONE_LINE), ("downloads", _ONE_LINE),
        ("notes", 0), ("host", 0), ("gpu", 0), ("downloads", 0),
        ("others", 0),
    )  # fmt: skip
    for name, smallest in steps:
        if missing() <= 0:
            break
        current = out.get(name, 0)
        out[name] = min(current, max(smallest, current - missing()) if smallest else 0)
    out["engine"] = max(0, min(out.get("engine", 0), body - MIN_REQUESTS))
    out["requests"] = body - sum(out.values())
    return out
