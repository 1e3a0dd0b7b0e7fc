"""The application: one poller, one view, screens that draw it. It never starts or stops a daemon."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, ClassVar

from textual.app import App, SystemCommand
from textual.binding import BindingType
from textual.events import AppBlur, AppFocus
from textual.screen import Screen
from textual.worker import Worker, WorkerState

from appliance.client import StatusSnapshot
from appliance.errors import ApplianceError
from tui import boxes, events, state
from tui.actions import ACTIONS, Scope, bindings, find
from tui.background import in_background
from tui.dashboard import Dashboard
from tui.door import Door, nothing
from tui.downloads_screen import DownloadsScreen
from tui.loaded_screen import LoadedScreen
from tui.log_screen import LogScreen
from tui.state import Lost, View
from tui.widgets.overlay import Overlay, Question

if TYPE_CHECKING:
    from datetime import tzinfo

log = logging.getLogger("appliance.ui")

INTERVAL_S = 1.0
BLURRED_S = 5.0
"""Pace while the terminal has not the focus."""
POLL = "poll"


class ApplianceApp(App[int]):
    """The terminal UI over `connect`, which finds the daemon (again) or raises ApplianceError."""

    CSS_PATH = "styles.tcss"
    TITLE = "appliance"
    BINDINGS: ClassVar[list[BindingType]] = list(bindings("app"))

    def __init__(
        self,
        connect: Callable[[], Door],
        *,
        ascii_only: bool = False,
        clock: Callable[[], float] = state.wall_clock,
        zone: tzinfo | None = None,
        polling: bool = True,
    ) -> None:
        super().__init__()
        self._connect = connect
        self._ascii_only = ascii_only
        self._clock = clock
        self._polling = polling
        self._door: Door | None = None
        self._interval_s = INTERVAL_S
        self._wake = asyncio.Event()
        self.view = View(now=clock(), zone=zone)
        if os.environ.get("SSH_CONNECTION"):
            self.animation_level = "none"

    # what is shown

    def on_mount(self) -> None:
        """Open the dashboard and begin to poll."""
        self.push_screen(Dashboard(self.view, ascii_only=self._ascii_only))
        if self._polling:
            self._start_polling()

    def _start_polling(self) -> None:
        self.run_worker(self._poll(), group=POLL, exclusive=True, exit_on_error=False)

    async def _poll(self) -> None:
        while True:
            if not self.view.frozen:
                await self.poll_once()
            self._wake.clear()
            try:
                async with asyncio.timeout(self._interval_s):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def poll_once(self) -> None:
        """Ask the daemon for its status and show it, or show that it is lost."""
        try:
            if self._door is None:
                self._door = await in_background(self._connect)
            shot = await in_background(self._door.status)
        except ApplianceError as error:
            self._lose(error)
        else:
            self._take(shot)

    def _take(self, shot: StatusSnapshot) -> None:
        now = self._clock()
        old = self.view
        happened = events.between(old.snapshot, shot, now)
        if old.lost is not None and old.snapshot is not None:
            happened = (events.Event(now, "Contact with the appliance is back.", "ok"), *happened)
        version = self._door.version_mismatch if self._door else None
        self._show(
            snapshot=shot, lost=None, history=old.history.add(shot), version=version, taken=now,
            since=state.standing(old.since, shot),
        )  # fmt: skip
        self._tell(*happened)

    def _lose(self, error: ApplianceError) -> None:
        self._door = None
        since = self.view.lost.since if self.view.lost else self._clock()
        if self.view.lost is None:
            log.warning("lost contact: %s", error.message)
        self._show(lost=Lost.of(error, since), history=self.view.history.add(None))

    def _tell(self, *happened: events.Event) -> None:
        if happened:
            self._show(events=(*reversed(happened), *self.view.events)[: events.KEPT])

    def _show(self, **changes: object) -> None:
        self.view = dataclasses.replace(self.view, now=self._clock(), **changes)  # type: ignore[arg-type]
        for screen in self.screen_stack:
            if isinstance(screen, Dashboard | DownloadsScreen | LoadedScreen):
                screen.show(self.view)

    def on_app_blur(self, event: AppBlur) -> None:
        """Nobody looks: poll rarely."""
        self._interval_s = BLURRED_S

    def on_app_focus(self, event: AppFocus) -> None:
        """Somebody looks again: poll now."""
        self._interval_s = INTERVAL_S
        self._wake.set()

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """A worker that broke must not end the app, and must not go unseen."""
        if event.state is WorkerState.ERROR:
            log.error("worker %s failed", event.worker.name, exc_info=event.worker.error)
            kind = type(event.worker.error).__name__
            self._tell(events.Event(self._clock(), f"A part of this UI failed ({kind}); see its log.", "bad"))
            if event.worker.group == POLL:
                self.set_timer(INTERVAL_S, self._start_polling)

    # keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """None (greyed out) for an action that can't be done now."""
        found = find(action)
        if found is None or state.is_possible(found, self.view):
            return True
        return None

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The palette: our own table first, then what Textual brings (theme, screenshot)."""
        for action in ACTIONS:
            handler = getattr(screen, f"action_{action.method}", None) or getattr(
                self, f"action_{action.method}", None
            )
            usable = action.method != "command_palette" and state.is_possible(action, self.view)
            if usable and handler is not None:
                yield SystemCommand(action.palette, action.help, handler)
        known = {"Quit", "Keys"}
        yield from (command for command in super().get_system_commands(screen) if command.title not in known)

    def action_leave(self) -> None:
        """Leave the UI; the daemon keeps serving."""
        self.exit(0)

    def action_help(self) -> None:
        """Show the keys of this screen."""
        scope: Scope = "dash"
        if isinstance(self.screen, DownloadsScreen | LoadedScreen):
            scope = self.screen.SCOPE
        self.push_screen(
            Overlay("Keys", lambda width: boxes.help_lines(width, scope), ascii_only=self._ascii_only)
        )

    def action_notices(self) -> None:
        """List notes and events."""
        view = self.view  # the box stands still while the values behind it move on
        self.push_screen(
            Overlay("Notices", lambda width: boxes.notice_lines(view, width), ascii_only=self._ascii_only)
        )

    def action_freeze(self) -> None:
        """Stop or go on with the display."""
        frozen = not self.view.frozen
        self._show(frozen=frozen, history=self.view.history if frozen else self.view.history.add(None))
        self._wake.set()

    def action_engine_log(self) -> None:
        """Follow the engine's log."""
        self.push_screen(LogScreen(lambda: self._door, self.view, ascii_only=self._ascii_only))

    def action_downloads(self) -> None:
        """List the downloads."""
        self.push_screen(DownloadsScreen(self.view, self.send, ascii_only=self._ascii_only))

    def action_models(self) -> None:
        """List the models that are here, loaded or not."""
        self.push_screen(
            LoadedScreen(
                self.view, self.send, self.run_alone, lambda: self._door, ascii_only=self._ascii_only
            )
        )

    def action_toggle_engine(self) -> None:
        """Stop the engine, or start it with what was asked for the last time."""
        if self._is_working():
            return
        if self.view.phase in ("running", "loading"):
            shot = self.view.snapshot
            count = sum(row.resident for row in shot.engines) if shot is not None else 0
            what = f"all {count} engines" if count > 1 else "the engine"
            doing = "Stopping all engines" if count > 1 else "Stopping the engine"
            self._after_asking(f"Stop {what}?", boxes.at_stake(shot), doing, lambda door: door.stop_engine())
        else:
            self.run_alone("Starting the engine", lambda door: door.restart_engine())

    def action_restart_engine(self) -> None:
        """Plan again with the same wishes, and restart the engine."""
        if not self._is_working():
            shot = self.view.snapshot
            main = shot.engine if shot is not None else None
            several = main is not None and shot is not None and bool(shot.others)
            stake = boxes.at_stake_of(shot, main.ref) if main and several else boxes.at_stake(shot)
            self._after_asking(
                "Restart the engine?", stake, "Restarting the engine", lambda door: door.restart_engine()
            )

    def _after_asking(
        self, question: str, detail: str | None, doing: str, command: Callable[[Door], object]
    ) -> None:
        if detail is None:
            self.run_alone(doing, command)
            return

        def answered(yes: bool | None) -> None:
            if yes:
                self.run_alone(doing, command)

        self.push_screen(Question(question, detail, ascii_only=self._ascii_only), answered)

    def _is_working(self) -> bool:
        """True while a command is under way, which is then said."""
        if self.view.working is None:
            return False
        self._show()
        self.notify(f"{state.working(self.view)}. The next command can come after it.", markup=False)
        return True

    def run_alone(
        self, doing: str, command: Callable[[Door], object], then: Callable[[], None] = nothing
    ) -> None:
        """A command that may take minutes; it is shown meanwhile, and there is one at a time."""
        if self._door is not None and not self._is_working():
            self._show(working=doing, working_since=self._clock())
            work = self._obey(doing, command, self._door, then)
            self.run_worker(work, group="command", exit_on_error=False)

    async def _obey(
        self, doing: str, command: Callable[[Door], object], door: Door, then: Callable[[], None]
    ) -> None:
        try:
            await self._ask(doing, command, door, then)
        finally:
            self._show(working=None, working_since=None)

    def send(self, doing: str, command: Callable[[Door], object], then: Callable[[], None] = nothing) -> None:
        """A quick command, beside one for the engine that may take minutes."""
        if self._door is not None:
            self.run_worker(self._ask(doing, command, self._door, then), group="quick", exit_on_error=False)

    async def _ask(
        self, doing: str, command: Callable[[Door], object], door: Door, then: Callable[[], None]
    ) -> None:
        try:
            await in_background(lambda: command(door))
        except ApplianceError as error:
            text = " ".join(part for part in (error.message, error.cause, error.hint) if part)
            self._tell(events.Event(self._clock(), f"{doing} failed: {text}", "bad"))
            self.notify(text, title=f"{doing} failed", severity="error", markup=False)
        finally:
            self._wake.set()
            then()
