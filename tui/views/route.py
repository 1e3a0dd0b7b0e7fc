"""The Route panel: where requests go, how many wait, what left the machine today."""

from __future__ import annotations

from appliance.client import StatusSnapshot
from tui import glyphs
from tui.frame import PanelView
from tui.lines import Line, Span, line, width_of
from tui.state import View, engine_mark
from tui.words import NA, number, place, reason

_LABEL = 9


def _row(word: str, spans: Line) -> Line:
    return line(Span(word.ljust(_LABEL), "muted"), *spans)


def route_panel(view: View, width: int) -> PanelView:
    """The panel for `width` columns of text."""
    shot = view.snapshot
    if shot is None:
        return PanelView("Route", (line(NA),))
    return PanelView(
        "Route",
        (
            _row("Local", (engine_mark(shot), Span(", last seen" if view.lost is not None else ""))),
            _row("Queue", queue_words(shot, long=True)),
            _row("Remote", remote_words(shot, long=True)),
            *_today(shot, width - _LABEL),
            _row("Last", _last(shot)),
            _row("Serving", line(place(shot.gateway_url))),
        ),
        line((shot.policy or f"policy {NA}").replace("-", " ")),
    )


def queue_words(shot: StatusSnapshot, *, long: bool = False) -> Line:
    """`1 interactive, 1 batch ~3.2 s`; the wait is what a request that came now would wait."""
    waiting = shot.queue.waiting
    if waiting is None:
        return line(f"queue {NA}")
    if waiting == 0:
        return line("0 waiting" if long else "0 queued")
    wait = shot.queue.predicted_wait
    soon = "" if wait is None else f" ~{wait:.{1 if wait < 10 else 0}f} s"
    lanes = ", ".join(f"{count} {name}" for name, count in shot.queue.lanes.items() if count)
    if long:
        return line(Span(lanes or f"{waiting} waiting", "warn"), soon)
    return line(Span(f"{waiting} queued{soon}", "warn"))


def remote_words(shot: StatusSnapshot, *, long: bool = False) -> Line:
    """The first remote: state, latency, address; how many more there are."""
    if not shot.remotes:
        return line(Span(f"{glyphs.NONE} none configured" if long else "no remote", "muted"))
    remote = shot.remotes[0]
    latency = f"{number(remote.latency_ms)} ms" if remote.latency_ms is not None else "up"
    state = glyphs.mark(remote.state, latency if remote.state == "up" else None)
    address = place(remote.url).removesuffix("/v1")
    more = f" +{len(shot.remotes) - 1}" if len(shot.remotes) > 1 else ""
    what = f"{remote.name}: {remote.error}" if remote.state == "down" and remote.error else address
    return line("" if long else "remote ", state, f"  {what}{more}" if long else f" {what}{more}")


def today_words(shot: StatusSnapshot, *, long: bool = False) -> Line:
    """What was answered today, and where. Remote is what left the machine."""
    today = shot.today
    local, remote, errors = number(today.local), number(today.remote), number(today.errors)
    if long:
        return line(f"{local} local · {remote} remote · {errors} err")
    return line(f"{local} local, {remote} remote, {errors} err today")


def _today(shot: StatusSnapshot, width: int) -> tuple[Line, ...]:
    """One row, or two where it would be cut."""
    whole = today_words(shot, long=True)
    if width_of(whole) <= width:
        return (_row("Today", whole),)
    today = shot.today
    return (
        _row("Today", line(f"{number(today.local)} local · {number(today.remote)} remote")),
        _row("", line(f"{number(today.errors)} err")),
    )


def _last(shot: StatusSnapshot) -> Line:
    row = next((r for r in shot.recent if r.route), None)
    if row is None:
        return line(Span(glyphs.NONE, "muted"))
    words = reason(row.reason)
    return line(f"{row.route}: {words}" if words else f"{row.route}")
