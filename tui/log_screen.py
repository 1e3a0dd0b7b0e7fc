"""The engine's log, followed in batches of four a second: a line each would cost ten times as much."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Log

from appliance.errors import ApplianceError
from appliance.text import clean_line
from tui import glyphs
from tui.background import in_background
from tui.lines import Line, Span, line, safe
from tui.widgets.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from tui.door import Door
    from tui.state import View

BATCH_S = 0.25
KEPT = 2_000
_PAGE = 500


class LogScreen(Screen[None]):
    """Lines of the log as they come. Escape or `l` goes back; scrolling up stops following."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,l", "back", "Back", show=False)]

    def __init__(self, door: Callable[[], Door | None], view: View, *, ascii_only: bool) -> None:
        super().__init__()
        self._door = door
        self._view = view
        self._ascii_only = ascii_only
        self._after = 0
        self._busy = False
        self._problem: str | None = None

    def compose(self) -> ComposeResult:
        yield Rows(lambda *_: (self._title(),), id="header", ascii_only=self._ascii_only)
        yield Log(max_lines=KEPT, id="log")
        yield Rows(lambda *_: (self._keys(),), id="footer", ascii_only=self._ascii_only)

    async def on_mount(self) -> None:
        """Begin to follow."""
        self.query_one(Log).focus()
        self._redraw()
        self.set_interval(BATCH_S, self._tick)

    def _tick(self) -> None:
        self.run_worker(self.follow(), group="log", exit_on_error=False)

    async def follow(self) -> None:
        """Fetch and show what is new. Does nothing while an earlier fetch still waits."""
        door = self._door()
        if self._busy or door is None:
            return
        self._busy = True
        try:
            page = await in_background(lambda: door.logs(self._after, _PAGE))
        except ApplianceError as error:
            self._problem = error.message
        else:
            self._problem = None
            self._after = max(self._after, page.next) if page.lines else page.next
            if page.lines and self.is_mounted:
                log = self.query_one(Log)
                log.write_lines(
                    [self._text(text) for text in page.lines], scroll_end=log.is_vertical_scroll_end
                )
        finally:
            self._busy = False
        self._redraw()

    def _text(self, text: str) -> str:
        one = safe(clean_line(text)) or " "  # Log drops empty lines
        return glyphs.to_ascii(one) if self._ascii_only else one

    def _redraw(self) -> None:
        if self.is_mounted:
            for rows in self.query(Rows):
                rows.show(self._view)
                rows.refresh()

    def _title(self) -> Line:
        kept = self.query_one(Log).line_count
        problem = Span(f"   {glyphs.FAILED} {self._problem}", "bad") if self._problem else ""
        return line(Span(" Engine log", "strong"), Span(f"   {kept} of {KEPT} lines kept", "muted"), problem)

    def _keys(self) -> Line:
        return line(
            Span(" esc", "accent"),
            " Back  ",
            Span("up/down", "accent"),
            " Scroll  ",
            Span("end", "accent"),
            " Follow",
        )

    def action_back(self) -> None:
        """To the dashboard."""
        self.dismiss(None)
