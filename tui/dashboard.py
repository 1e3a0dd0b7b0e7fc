"""The dashboard: is it well? One screen of panels over the last snapshot."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.events import Resize
from textual.screen import Screen
from textual.widgets import Static

from tui import layout, state
from tui.actions import bindings
from tui.lines import Line, Span
from tui.state import View
from tui.views.downloads import downloads_panel
from tui.views.engine import engine_panel
from tui.views.gpu import gpu_panel
from tui.views.host import host_panel
from tui.views.notes import notes_panel
from tui.views.requests import requests_panel
from tui.views.residents import others_panel
from tui.views.route import route_panel
from tui.widgets.content import content_of
from tui.widgets.panel import Build, Panel
from tui.widgets.rows import Rows

ROUTE_SHARE = 0.42
"""Columns of the Route panel beside the Engine panel."""


_OPTIONAL: tuple[layout.PanelId, ...] = ("others", "gpu", "host", "downloads", "notes")


class Dashboard(Screen[None]):
    """The first screen."""

    BINDINGS: ClassVar[list[BindingType]] = list(bindings("dash"))

    def __init__(self, view: View, *, ascii_only: bool) -> None:
        super().__init__()
        self._view = view
        self._ascii_only = ascii_only

    def compose(self) -> ComposeResult:
        yield self._rows("header", state.header)
        with Vertical(id="panels"):
            with Horizontal(id="top"):
                yield self._panel("engine", lambda v, w: engine_panel(v, w, self._compact))
                yield self._panel("route", route_panel)
            yield self._panel("others", lambda v, w: others_panel(v, w, self._compact))
            yield self._panel("gpu", lambda v, w: gpu_panel(v, w, self._compact))
            yield self._panel("host", lambda v, w: host_panel(v, w, self._compact))
            yield self._panel("downloads", downloads_panel)
            yield self._panel("notes", lambda v, w: notes_panel(v, w, self._compact))
            yield self._panel("requests", lambda v, w: requests_panel(v, w, self._compact))
        yield self._rows("notice", state.notice)
        yield self._rows("footer", state.footer)
        yield Static("", id="tiny", markup=False)

    def _panel(self, name: layout.PanelId | Literal["route"], build: Build) -> Panel:
        return Panel(build, id=name, ascii_only=self._ascii_only)

    def _rows(self, name: str, draw: Callable[[View, int], Line]) -> Rows:
        return Rows(lambda view, width, _: (draw(view, width),), id=name, ascii_only=self._ascii_only)

    @property
    def _compact(self) -> bool:
        return state.is_compact(self.size.width, self.size.height)

    def on_mount(self) -> None:
        """Show what is known already."""
        self.show(self._view)

    def on_resize(self, event: Resize) -> None:
        """Lay the panels out again."""
        self.show(self._view)

    def show(self, view: View) -> None:
        """Take a new view: sizes first, then contents."""
        self._view = view
        if not self.size.width or not self.query("#tiny"):
            return  # not composed yet, or leaving
        width, height = self.size
        tiny = state.is_tiny(width, height)
        self.set_class(tiny, "-tiny")
        if tiny:
            text = Span(state.tiny(view, width, height))
            self.query_one("#tiny", Static).update(content_of(((text,),), ascii_only=self._ascii_only))
            return
        self._arrange(view, width, height)
        for rows in self.query(Rows):
            rows.show(view)

    def _arrange(self, view: View, width: int, height: int) -> None:
        beside = not self._compact and view.phase in ("running", "loading", "stopped")
        route_width = round(width * ROUTE_SHARE) if beside else 0
        panels = {str(panel.id): panel for panel in self.query(Panel)}
        engine = panels["engine"].wanted_rows(view, width - route_width)
        route = panels["route"].wanted_rows(view, route_width) if beside else 0
        wants: dict[layout.PanelId, int] = {"engine": max(engine, route)}
        for name in _OPTIONAL:
            wants[name] = panels[name].wanted_rows(view, width)
        if self._compact:
            wants["notes"] = 0  # the notice row says it; n lists them
        rows = layout.heights(height, wants)
        self.query_one("#top").styles.height = rows["engine"]
        panels["route"].display = beside
        panels["route"].styles.width = route_width
        for name, height_of in rows.items():
            if name != "engine":
                panels[name].display = height_of > 0
                panels[name].styles.height = height_of
