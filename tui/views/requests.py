"""The Requests panel: those that run, then the last ones, newest first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from appliance.client import RequestRow
from tui import words
from tui.frame import PanelView
from tui.lines import Line, Span, Tone, fit, line
from tui.state import View

_CLIENT_LEFT = 499


@dataclass(frozen=True, slots=True)
class _Column:
    title: str
    width: int
    align: Literal["left", "right"] = "left"
    long_only: bool = False


_COLUMNS = (
    _Column("Time", 8),
    _Column("Route", 6),
    _Column("Model", 0),
    _Column("In", 6, "right", long_only=True),
    _Column("Out", 6, "right"),
    _Column("TTFT", 6, "right"),
    _Column("t/s", 5, "right"),
    _Column("Total", 6, "right", long_only=True),
    _Column("Status", 0),
)
_GAP = 2
_MODEL_SHARE = 0.34
"""Of what the fixed columns leave; the rest is for the status."""


def requests_panel(view: View, width: int, compact: bool) -> PanelView:
    """The panel for `width` columns of text."""
    shot = view.snapshot
    if shot is None:
        return PanelView("Requests", ())
    running = shot.queue.running if shot.queue.running is not None else len(shot.running)
    scope = line(f"{running} running · {words.number(shot.queue.waiting)} queued")
    rows = (*shot.running, *shot.recent)
    if not rows:
        model = shot.model.ref.partition(":")[0] if shot.model else "MODEL"
        return PanelView("Requests", _none_yet(shot.gateway_url, model), scope)
    columns = tuple(c for c in _COLUMNS if not (compact and c.long_only))
    widths = _widths(columns, width)
    titles = [fit(c.title, w, c.align) for c, w in zip(columns, widths, strict=True)]
    head = line(Span((" " * _GAP).join(titles), "muted"))
    return PanelView("Requests", (head, *(_row(view, row, columns, widths) for row in rows)), scope)


def _widths(columns: tuple[_Column, ...], width: int) -> list[int]:
    fixed = sum(c.width for c in columns) + _GAP * (len(columns) - 1)
    free = max(14, width - fixed)
    model = max(8, min(28, int(free * _MODEL_SHARE)))
    flexible = {"Model": model, "Status": max(6, free - model)}
    return [flexible.get(c.title, c.width) for c in columns]


def _row(view: View, row: RequestRow, columns: tuple[_Column, ...], widths: list[int]) -> Line:
    status, tone = status_words(row)
    running = row.status is None
    values = {
        "Time": view.clock(row.started_at),
        "Route": "–" if row.route in (None, "none") else row.route,
        "Model": row.served_model or row.model or words.NA,
        "In": words.number(row.tokens_in),
        "Out": words.number(row.tokens_out),
        "TTFT": words.seconds(row.ttft_ms),
        "t/s": "–" if row.tokens_per_second is None else words.number(row.tokens_per_second, 1),
        "Total": "…" if running else words.seconds(row.total_ms),
    }
    texts = [
        fit(values[c.title], w, c.align) for c, w in zip(columns, widths, strict=True) if c.title != "Status"
    ]
    return line((" " * _GAP).join(texts) + " " * _GAP, Span(fit(status, widths[-1]), tone))


def status_words(row: RequestRow) -> tuple[str, Tone]:
    """The status column: what the request does or how it ended, and why it went where it went."""
    if row.status is None:
        return (_doing(row), "accent")
    if row.status == _CLIENT_LEFT:
        return (f"{row.status}  client went away", "muted")
    notes = ", ".join(filter(None, (words.reason(row.reason), words.degraded(row.degraded))))
    text = f"{row.status}  {notes}" if notes else f"{row.status}"
    if row.status >= 500:
        return (text, "bad")
    return (text, "warn" if row.status >= 400 or row.degraded else "plain")


def _doing(row: RequestRow) -> str:
    """What a running request does; it has no route until a side is settled."""
    if row.tokens_out or row.ttft_ms is not None:
        return "streaming"
    return "running" if row.route in ("local", "remote") else "waiting"


def _none_yet(url: str | None, model: str) -> tuple[Line, ...]:
    if url is None:
        return (line("No requests yet."),)
    return (
        line("No requests yet. A first one:"),
        line(Span(f"  curl {url}/chat/completions \\", "accent")),
        line(Span(f"""   -H 'content-type: application/json' -d '{{"model": "{model}",""", "accent")),
        line(Span("""   "messages": [{"role": "user", "content": "Hello"}]}'""", "accent")),
    )
