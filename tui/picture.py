"""Pictures and text dumps of the dashboard without a terminal: for the README and for tests."""

from __future__ import annotations

import asyncio
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any

from appliance.client import StatusSnapshot
from appliance.client.library import CatalogRow, LogPage

if TYPE_CHECKING:
    from tui.app import ApplianceApp


class FixedDoor:
    """A door that always answers with the same document."""

    version_mismatch: str | None = None

    def __init__(self, document: dict[str, Any]) -> None:
        self._document = document

    def status(self) -> StatusSnapshot:
        """The document, read."""
        return StatusSnapshot.parse(self._document)

    def logs(self, after: int = 0, limit: int = 500) -> LogPage:
        """No lines."""
        return LogPage((), 0)

    def models(self) -> tuple[CatalogRow, ...]:
        """Those that have an engine."""
        return tuple(CatalogRow.parse({"ref": row.ref, "state": "here"}) for row in self.status().engines)

    def pinned(self) -> tuple[str, ...]:
        """None."""
        return ()

    def load(self, ref: str) -> None:
        """Nothing to load."""

    def unload(self, ref: str) -> None:
        """Nothing to unload."""

    def restart(self, ref: str) -> None:
        """Nothing to restart."""

    def pin(self, ref: str, pinned: bool) -> None:
        """Nothing to pin."""

    def stop_engine(self) -> None:
        """Nothing to stop."""

    def restart_engine(self) -> None:
        """Nothing to restart."""

    def pause_download(self, download_id: str) -> None:
        """Nothing to pause."""

    def resume_download(self, download_id: str) -> None:
        """Nothing to resume."""

    def cancel_download(self, download_id: str) -> None:
        """Nothing to cancel."""


def export_svg(
    document: dict[str, Any], path: Path, *, size: tuple[int, int] = (100, 30), now: float
) -> None:
    """Draw the dashboard for a status document and write it to `path` as SVG. `now` is Unix time, in UTC."""
    from tui.app import ApplianceApp

    app = ApplianceApp(lambda: FixedDoor(document), clock=lambda: now, zone=UTC, polling=False)
    path.write_text(asyncio.run(_svg(app, size)), encoding="utf-8")


async def _svg(app: ApplianceApp, size: tuple[int, int]) -> str:
    async with app.run_test(size=size) as pilot:
        await app.poll_once()
        await pilot.pause()
        return app.export_screenshot(title="appliance")
