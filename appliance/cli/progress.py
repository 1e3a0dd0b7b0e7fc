"""A progress bar on stderr, or a line now and then where stderr is no terminal."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from appliance.text import clean_line
from appliance.units import duration, size

if TYPE_CHECKING:
    from appliance.client import Client, DownloadRow
    from appliance.store import Progress

LINE_EVERY_S = 5.0
LOOK_S = 0.2


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
        """Show where a transfer in this process stands."""
        p = progress
        self._show(
            p.ref,
            p.phase,
            p.done,
            p.total,
            figures(p.phase, p.done, p.total, p.rate, p.eta_s, p.resumable, p.message),
        )

    def row(self, row: DownloadRow) -> None:
        """Show where a transfer of the daemon stands."""
        said = figures(row.phase, row.done, row.total, row.rate, row.eta_s, row.resumable, row.message)
        if row.limit is not None and row.phase == "downloading":
            said += f" · at most {size(row.limit)}/s"
        self._show(row.ref, row.phase, row.done, row.total, said)

    def _show(self, ref: str, phase: str, done: int | None, total: int | None, said: str) -> None:
        text = f"{clean_line(phase, 20)} {clean_line(ref, 60)}"
        if self._console.is_terminal:
            self._paint(text, done, total, said)
        elif phase != self._last_phase or time.monotonic() - self._last_line > LINE_EVERY_S:
            self._console.print(f"{text}: {said}", soft_wrap=True)
            self._last_line = time.monotonic()
        self._last_phase = phase

    def _paint(self, text: str, done: int | None, total: int | None, figures: str) -> None:
        if self._task is None:
            self._task = self._bar.add_task(text, total=total, figures=figures)
        self._bar.update(self._task, description=text, total=total, completed=done or 0, figures=figures)


class DownloadBar(Bar):
    """The same bar for a transfer that the daemon carries out."""

    async def follow(self, client: Client, key: str) -> DownloadRow:
        """Look until the transfer has ended well. Raises what it ended with.

        A paused one is shown as such at a terminal; where nobody looks it ends the wait with DownloadError.
        """
        from appliance.client.following import find, paused, require_done

        while True:
            row = await asyncio.to_thread(find, client, key)
            self.row(row)
            if row.ended:
                return require_done(row)
            if row.paused and not self._console.is_terminal:
                raise paused(row)
            await asyncio.sleep(LOOK_S)


def figures(
    phase: str,
    done: int | None,
    total: int | None,
    rate: float | None,
    eta_s: float | None,
    resumable: bool | None,
    message: str | None,
) -> str:
    """What stands beside the bar: bytes, speed, time left, and what else a person should know."""
    parts = [size(done) if total is None else f"{size(done)} of {size(total)}"]
    if rate:
        parts.append(f"{size(int(rate))}/s")
    if rate and eta_s is not None:
        parts.append(f"{duration(eta_s)} left")
    if message:
        parts.append(clean_line(message, 80))
    elif resumable is False and phase in ("downloading", "extracting"):
        parts.append("starts over after a stop")
    return " · ".join(parts)
