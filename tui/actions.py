"""Every key of the UI, once. Bindings, footer, help and command palette are made from this table.

To add an action: a row here, and a method `action_<method>` on the app (or on the screen of its scope).
`scope` says where its key works.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from textual.binding import Binding

Scope = Literal["app", "dash", "downloads", "loaded"]
ON_SCREEN: tuple[Scope, ...] = ("downloads", "loaded")
"""Scopes whose methods are on their screen; those of the others are on the app."""


@dataclass(frozen=True, slots=True)
class Action:
    """One thing a key does. `id` is what a keymap names, e.g. `engine.toggle`."""

    id: str
    key: str
    method: str
    label: str
    """One word for the footer."""
    help: str
    """One sentence for help and palette."""
    scope: Scope
    needs_daemon: bool = False
    in_footer: bool = True

    @property
    def key_word(self) -> str:
        """The key as people read it."""
        first = self.key.partition(",")[0]
        return {"question_mark": "?", "ctrl+p": "^p"}.get(first, first)

    @property
    def palette(self) -> str:
        """Name in the command palette: `engine: restart`."""
        area, _, verb = self.id.partition(".")
        return f"{area}: {verb}"


ACTIONS: tuple[Action, ...] = (
    Action(
        "engine.toggle", "s", "toggle_engine", "Stop",
        "Stop all engines, or start the default one again. Asks while a request is running.", "dash",
        needs_daemon=True,
    ),
    Action(
        "engine.restart", "r", "restart_engine", "Restart",
        "Plan again with what is free now, and restart the default engine. Asks while a request is running.",
        "dash", needs_daemon=True,
    ),
    Action(
        "model.list", "m", "models", "Models", "List the models here: load, unload, pin, restart.", "dash",
    ),
    Action("engine.log", "l", "engine_log", "Log", "Follow the engine's log.", "dash", needs_daemon=True),
    Action(
        "download.list", "d", "downloads", "Downloads", "List the downloads: pause, resume, cancel.", "dash"
    ),
    Action(
        "download.toggle", "p,space", "toggle_download", "Pause",
        "Among the downloads: pause the chosen one, or let it go on.", "downloads", needs_daemon=True,
    ),
    Action(
        "download.cancel", "x", "cancel_download", "Cancel",
        "Among the downloads: leave the chosen one. Asks; what has arrived is kept.", "downloads",
        needs_daemon=True,
    ),
    Action(
        "model.load", "enter", "load_model", "Load",
        "Among the models: load the chosen one, or make it the default.", "loaded", needs_daemon=True,
    ),
    Action(
        "model.unload", "u", "unload_model", "Unload",
        "Among the models: free the memory of the chosen one. Asks while a request is running.", "loaded",
        needs_daemon=True,
    ),
    Action(
        "model.pin", "p", "pin_model", "Pin",
        "Among the models: keep the chosen one loaded, or no longer.", "loaded", needs_daemon=True,
    ),
    Action(
        "model.restart", "r", "restart_model", "Restart",
        "Among the models: load the chosen one again. Asks while a request is running.", "loaded",
        needs_daemon=True,
    ),
    Action("display.freeze", "space", "freeze", "Freeze", "Freeze the display, or let it go on.", "dash"),
    Action("notices.list", "n", "notices", "Notices", "List what happened and what needs attention.", "app"),
    Action("help.keys", "question_mark", "help", "Help", "Show these keys.", "app"),
    Action("app.leave", "q", "leave", "Quit", "Leave the UI. The appliance keeps serving.", "app"),
    Action(
        "commands.search", "ctrl+p", "command_palette", "Commands", "Search all commands by name.", "app",
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ScreenTab:
    """A screen of the header row and the digit that opens it."""

    id: str
    key: str
    label: str


SCREENS: tuple[ScreenTab, ...] = (ScreenTab("dash", "1", "Dash"),)


def bindings(scope: Scope) -> list[Binding]:
    """Textual's bindings for one scope. Our own footer shows them, so they are hidden from Textual's."""
    from textual.binding import Binding  # late, so that the views stay free of Textual

    return [
        Binding(
            a.key,
            a.method if a.scope in ON_SCREEN else f"app.{a.method}",
            a.label,
            id=a.id,
            show=False,
            tooltip=a.help,
        )
        for a in ACTIONS
        if a.scope == scope and a.key != "ctrl+p"  # Textual binds its palette itself
    ]


def find(method: str) -> Action | None:
    """The action that a method belongs to."""
    return next((a for a in ACTIONS if a.method == method), None)
