"""The models that are here, one chosen: load it, unload it, pin it, load it again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from appliance.client.library import CatalogRow
from appliance.errors import ApplianceError
from tui import boxes, state
from tui.actions import Scope, bindings
from tui.background import in_background
from tui.door import Door, Send
from tui.lines import Line
from tui.state import View
from tui.views import loaded
from tui.views.loaded import Entry, Shelf
from tui.widgets.overlay import Question
from tui.widgets.rows import Rows

LOOK_S = 10.0
"""How often the models on the disk are listed anew; what is loaded follows the snapshots."""


class LoadedScreen(Screen[None]):
    """Follows the snapshots like the dashboard. Escape or `m` goes back."""

    SCOPE: ClassVar[Scope] = "loaded"
    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings("loaded"),
        Binding("up,k", "choose(-1)", show=False),
        Binding("down,j", "choose(1)", show=False),
        Binding("home", "choose(-1000)", show=False),
        Binding("end", "choose(1000)", show=False),
        Binding("escape,m", "back", "Back", show=False),
    ]

    def __init__(
        self, view: View, send: Send, alone: Send, door: Callable[[], Door | None], *, ascii_only: bool
    ) -> None:
        """`send` carries out quick commands, `alone` those that load."""
        super().__init__()
        self._view = view
        self._send, self._alone, self._door = send, alone, door
        self._ascii_only = ascii_only
        self._shelf = Shelf()
        self._wanted: str | None = None
        self._asking = False

    def compose(self) -> ComposeResult:
        plain = self._ascii_only
        yield Rows(lambda v, w, _: (loaded.title_line(v, self._shelf, w),), id="header", ascii_only=plain)
        yield Rows(
            lambda v, w, h: loaded.entry_lines(v, self._shelf, self._wanted, w, h),
            id="loaded",
            ascii_only=plain,
        )
        yield Rows(lambda v, w, _: (state.notice(v, w),), id="notice", ascii_only=plain)
        yield Rows(lambda v, w, _: (self._keys(v, w),), id="footer", ascii_only=plain)

    def on_mount(self) -> None:
        """Show what is known already, and ask for the rest."""
        self.show(self._view)
        self.run_worker(self.look(), group="shelf", exit_on_error=False)
        self.set_interval(LOOK_S, self._look)

    def show(self, view: View) -> None:
        """Take a new view."""
        self._view = view
        for rows in self.query(Rows):  # none yet, or leaving
            rows.show(view)

    def _look(self) -> None:
        if self.is_mounted:
            self.run_worker(self.look(), group="shelf", exit_on_error=False)

    async def look(self) -> None:
        """Ask which models are here. Does nothing while an earlier question still waits."""
        door = self._door()
        if self._asking or door is None:
            return
        self._asking = True

        def ask() -> tuple[tuple[CatalogRow, ...], tuple[str, ...]]:
            return door.models(), door.pinned()

        try:
            models, pinned = await in_background(ask)
        except ApplianceError as error:
            told = " ".join(part for part in (error.message, error.hint) if part)
            self._shelf = replace(self._shelf, problem=told)
        else:
            self._shelf = Shelf(models, pinned)
        finally:
            self._asking = False
        self.show(self._view)

    def _keys(self, view: View, width: int) -> Line:
        row = self._row()
        words = {
            "model.load": load_word(row), "model.unload": unload_word(row),
            "model.pin": pin_word(row), "model.restart": "Restart" if row and row.serves else "",
        }  # fmt: skip
        return state.footer(view, width, "loaded", words)

    def _row(self) -> Entry | None:
        return loaded.chosen(loaded.entries(self._view, self._shelf), self._wanted)

    def _reachable(self) -> Entry | None:
        """The chosen one; None without a daemon, to which nothing can be said."""
        return self._row() if self._view.lost is None else None

    def action_choose(self, step: int) -> None:
        """Another row."""
        self._wanted = loaded.neighbour(loaded.entries(self._view, self._shelf), self._wanted, step)
        self.show(self._view)

    def action_back(self) -> None:
        """To the dashboard."""
        self.dismiss(None)

    def action_load_model(self) -> None:
        """Load the chosen one; one that is loaded is loaded again as the default, after asking."""
        row = self._reachable()
        if row is None or not load_word(row):
            return
        ref, doing = row.ref, f"Loading {row.ref}"
        self._after_asking(
            f"Load {ref} again, as the default?", row, self._alone, doing, lambda d: d.load(ref)
        )

    def action_restart_model(self) -> None:
        """Load the chosen one again, after asking."""
        row = self._reachable()
        if row is not None and row.serves:
            ref, doing = row.ref, f"Restarting {row.ref}"
            self._after_asking(f"Restart {ref}?", row, self._alone, doing, lambda door: door.restart(ref))

    def action_unload_model(self) -> None:
        """Free its memory, after asking; a load that is under way ends."""
        row = self._reachable()
        if row is not None and unload_word(row):
            ref, doing = row.ref, f"Unloading {row.ref}"
            self._after_asking(f"Unload {ref}?", row, self._send, doing, lambda door: door.unload(ref))

    def action_pin_model(self) -> None:
        """Keep it loaded, or no longer."""
        row = self._reachable()
        if row is not None:
            ref, pinned = row.ref, not row.pinned
            doing = f"{'Pinning' if pinned else 'Unpinning'} {ref}"
            self._send(doing, lambda door: door.pin(ref, pinned), self._look)

    def _after_asking(
        self, question: str, row: Entry, way: Send, doing: str, command: Callable[[Door], object]
    ) -> None:
        """Asks only where requests would be cut off."""
        detail = boxes.at_stake_of(self._view.snapshot, row.ref)
        self._wanted = row.ref  # the row moves when its model is loaded; the choice stays with it
        if detail is None:
            way(doing, command, self._look)
            return

        def answered(yes: bool | None) -> None:
            if yes:
                way(doing, command, self._look)

        self.app.push_screen(Question(question, detail, ascii_only=self._ascii_only), answered)


def load_word(row: Entry | None) -> str:
    """What enter does; nothing to the default that is loaded, or to one that is on its way."""
    if row is None or (row.resident and (row.default or not row.serves)):
        return ""
    return "Make default" if row.resident else "Load"


def unload_word(row: Entry | None) -> str:
    """What `u` does."""
    if row is None or row.engine is None or not row.resident or row.engine.state == "stopping":
        return ""
    return "Unload" if row.serves else "Stop loading"


def pin_word(row: Entry | None) -> str:
    """What `p` does."""
    return "" if row is None else "Unpin" if row.pinned else "Pin"
