"""The app under test, and what is on its screen as plain text."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC
from typing import Any

from textual.pilot import Pilot

from appliance.client import Client
from appliance.paths import Paths
from tests.client import documents
from tui.app import ApplianceApp
from tui.door import Door
from tui.picture import FixedDoor

SIZES = ((80, 24), (100, 30), (140, 40))


def dump(app: ApplianceApp) -> str:
    """The screen as text, trailing blanks cut. The only place that touches Textual's private compositor."""
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)


@dataclass
class Clock:
    """A clock that stands still."""

    now: float = documents.NOW

    def __call__(self) -> float:
        return self.now


@dataclass
class Running:
    """An app in a headless terminal."""

    app: ApplianceApp
    pilot: Pilot[int]
    clock: Clock

    async def poll(self) -> None:
        """One poll, drawn."""
        await self.app.poll_once()
        await self.pilot.pause()

    async def press(self, *keys: str) -> None:
        """Press keys and let commands that they started finish."""
        await self.pilot.press(*keys)
        await self.app.workers.wait_for_complete()
        await self.pilot.pause()

    async def until(self, shown: str) -> None:
        """Let the app work until `shown` is on the screen; a new screen is drawn some rounds later."""
        for _ in range(400):
            if shown in self.text:
                return
            await self.pilot.pause(0.005)
        raise AssertionError(f"{shown!r} did not appear:\n{self.text}")

    @property
    def text(self) -> str:
        """What is on the screen."""
        return dump(self.app)


@asynccontextmanager
async def fixed(
    document: dict[str, Any], size: tuple[int, int] = (100, 30), *, ascii_only: bool = False
) -> AsyncIterator[Running]:
    """The app over one document, polled once."""
    async with running(lambda: FixedDoor(copy.deepcopy(document)), size, ascii_only=ascii_only) as on:
        yield on


@asynccontextmanager
async def against(paths: Paths, size: tuple[int, int] = (100, 30)) -> AsyncIterator[Running]:
    """The app over the daemon of these folders, polled once."""
    async with running(lambda: Client.connect(paths, timeout_s=2), size) as on:
        yield on


@asynccontextmanager
async def running(
    connect: Any, size: tuple[int, int], *, ascii_only: bool = False, first_poll: bool = True
) -> AsyncIterator[Running]:
    """The app over any door. It polls when the test says so."""
    clock = Clock()

    def door() -> Door:
        opened: Door = connect()
        return opened

    app = ApplianceApp(door, ascii_only=ascii_only, clock=clock, zone=UTC, polling=False)
    async with app.run_test(size=size, notifications=True, tooltips=True) as pilot:
        on = Running(app, pilot, clock)
        if first_poll:
            await on.poll()
        yield on
