"""A progress bar on stderr, or a line now and then where stderr is no terminal."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from appliance.errors import ApplianceError, DownloadError
from appliance.text import clean_line
from appliance.units import duration, size

if TYPE_CHECKING:
    from appliance.client import Client
    from appliance.store import Progress

LINE_EVERY_S = 5.0


class Bar:
    """One bar for the transfer of one model: bytes, rate, time left, and the phase in words."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self._console = Console(stderr=True, markup=False, highlight=False)
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[figures]}", markup=False),
            console=self._console,
            transient=False,
        )
        self._task: Any = None
        self._last_line = 0.0
        self._last_phase = ""

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def update(self, progress: Progress) -> None:
        """Show where a transfer stands."""
        self.show(
            progress.ref,
            progress.phase,
            progress.done,
            progress.total,
            progress.rate,
            progress.eta_s,
            progress.message,
        )

    def show(
        self,
        ref: str,
        phase: str,
        done: int | None,
        total: int | None,
        rate: float | None,
        eta_s: float | None,
        message: str | None,
    ) -> None:
        figures = size(done) if total is None else f"{size(done)} of {size(total)}"
        if rate:
            figures += f" · {size(int(rate))}/s"
        if eta_s is not None and phase == "downloading":
            figures += f" · {duration(eta_s)} left"
        if message:
            figures += f" · {clean_line(message, 80)}"
        text = f"{phase} {clean_line(ref, 60)}"
        if self._console.is_terminal:
            self._paint(text, done, total, figures)
        elif phase != self._last_phase or time.monotonic() - self._last_line > LINE_EVERY_S:
            self._console.print(f"{text}: {figures}", soft_wrap=True)
            self._last_line = time.monotonic()
        self._last_phase = phase

    def _paint(self, text: str, done: int | None, total: int | None, figures: str) -> None:
        if self._task is None:
            self._task = self._bar.add_task(text, total=total, figures=figures)
        self._bar.update(self._task, description=text, total=total, completed=done or 0, figures=figures)


class DownloadBar(Bar):
    """The same bar for a transfer that the daemon carries out."""

    async def follow(self, client: Client, key: str) -> dict[str, Any]:
        """Poll until the transfer ends. Raises the ApplianceError it ended with."""
        while True:
            rows = await asyncio.to_thread(client.call, "GET", "/api/downloads")
            found = next((dict(row) for row in rows["downloads"] if row["id"] == key), None)
            if found is None:
                raise DownloadError("The daemon no longer knows this download.", hint="Start it again.")
            self.show(
                found["ref"],
                found["phase"],
                found["done"],
                found["total"],
                found["rate"],
                found["eta_s"],
                found["message"],
            )
            if found["finished"]:
                if found["phase"] == "done":
                    return found
                raise _ended(found)
            await asyncio.sleep(0.2)


def _ended(found: dict[str, Any]) -> ApplianceError:
    from appliance.client.transport import error_of

    if isinstance(found.get("error"), dict):
        return error_of(found["error"], DownloadError.status)
    return DownloadError(found.get("message") or "The download ended.", hint="Start it again; it goes on.")
