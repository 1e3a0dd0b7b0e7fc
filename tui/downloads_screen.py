"""The downloads, one chosen: pause it, let it go on, leave it."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from appliance.client import DownloadRow
from appliance.units import size
from tui import state
from tui.actions import Scope, bindings
from tui.door import Send
from tui.lines import Line
from tui.state import View
from tui.views import transfers
from tui.widgets.overlay import Question
from tui.widgets.rows import Rows


class DownloadsScreen(Screen[None]):
    """Follows the snapshots like the dashboard. Escape or `d` goes back."""

    SCOPE: ClassVar[Scope] = "downloads"
    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings("downloads"),
        Binding("up,k", "choose(-1)", show=False),
        Binding("down,j", "choose(1)", show=False),
        Binding("home", "choose(-1000)", show=False),
        Binding("end", "choose(1000)", show=False),
        Binding("escape,d", "back", "Back", show=False),
    ]

    def __init__(self, view: View, send: Send, *, ascii_only: bool) -> None:
        super().__init__()
        self._view = view
        self._send = send
        self._ascii_only = ascii_only
        self._wanted: str | None = None

    def compose(self) -> ComposeResult:
        plain = self._ascii_only
        yield Rows(lambda v, w, _: (transfers.title_line(v, w),), id="header", ascii_only=plain)
        yield Rows(
            lambda v, w, h: transfers.transfer_lines(v, self._wanted, w, h), id="transfers", ascii_only=plain
        )
        yield Rows(lambda v, w, _: (state.notice(v, w),), id="notice", ascii_only=plain)
        yield Rows(lambda v, w, _: (self._keys(v, w),), id="footer", ascii_only=plain)

    def on_mount(self) -> None:
        """Show what is known already."""
        self.show(self._view)

    def show(self, view: View) -> None:
        """Take a new view."""
        self._view = view
        for rows in self.query(Rows):  # none yet, or leaving
            rows.show(view)

    def _keys(self, view: View, width: int) -> Line:
        row = self._row()
        toggle, cancel = (_toggle_word(row), _cancel_word(row)) if row is not None else ("", "")
        return state.footer(view, width, "downloads", {"download.toggle": toggle, "download.cancel": cancel})

    def _row(self) -> DownloadRow | None:
        return transfers.chosen(self._view, self._wanted)

    def action_choose(self, step: int) -> None:
        """Another row."""
        self._wanted = transfers.neighbour(self._view, self._wanted, step)
        self.show(self._view)

    def action_back(self) -> None:
        """To the dashboard."""
        self.dismiss(None)

    def action_toggle_download(self) -> None:
        """Pause the chosen one, let it go on, or try it again."""
        row = self._row()
        word = _toggle_word(row) if row is not None else ""
        if row is None or not word:
            return
        key = row.id
        if word == "Pause":
            self._send(f"Pausing {row.ref}", lambda door: door.pause_download(key))
        else:
            self._send(f"Resuming {row.ref}", lambda door: door.resume_download(key))

    def action_cancel_download(self) -> None:
        """Leave the chosen one after asking; a finished one goes from the list at once."""
        row = self._row()
        if row is None:
            return
        if row.ended:
            self._cancel(row)
            return

        def answered(yes: bool | None) -> None:
            if yes:
                self._cancel(row)

        self.app.push_screen(
            Question("Cancel this download?", at_stake(row), ascii_only=self._ascii_only), answered
        )

    def _cancel(self, row: DownloadRow) -> None:
        self._send(f"Cancelling {row.ref}", lambda door: door.cancel_download(row.id))


def at_stake(row: DownloadRow) -> str:
    """Which file, and what is kept of it."""
    file = f" ({row.file})" if row.file else ""
    if row.resumable is False:
        return f"{row.ref}{file}: this source starts over, so nothing of it is kept."
    if not row.done:
        return f"{row.ref}{file}: nothing has arrived yet."
    arrived = f"{size(row.done)} of {size(row.total)}"
    return f"{row.ref}{file}: {arrived} stay on this disk; a new start goes on from there."


def _toggle_word(row: DownloadRow) -> str:
    """What `p` does; nothing to one that is done."""
    if row.phase == "done":
        return ""
    words = {"failed": "Try again", "cancelled": "Start", "paused": "Resume"}
    return words.get(row.phase, "Pause")


def _cancel_word(row: DownloadRow) -> str:
    return "Off the list" if row.ended else "Cancel"
