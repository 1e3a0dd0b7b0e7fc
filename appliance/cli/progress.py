"""Progress of a transfer on stderr: two lines that move, or a line now and then where it is no terminal."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from appliance.text import clean_line
from appliance.units import duration, size

if TYPE_CHECKING:
    from appliance.client import Client, DownloadRow
    from appliance.store import Progress

LINE_EVERY_S = 5.0
LOOK_S = 0.2
BAR_COLUMNS = 24
_LEAST_BAR = 8


class Bar:
    """The transfer of one model: bytes, rate, time left, and the phase in words."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(stderr=True, markup=False, highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, transient=False)
        self._last_line = 0.0
        self._last_phase = ""

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def update(self, progress: Progress) -> None:
        """Show where a transfer in this process stands."""
        p = progress
        said = figures(p.phase, p.done, p.total, p.rate, p.eta_s, p.resumable, p.message)
        self._show(p.ref, p.phase, p.done, p.total, said)

    def row(self, row: DownloadRow) -> None:
        """Show where a transfer of the daemon stands."""
        said = figures(row.phase, row.done, row.total, row.rate, row.eta_s, row.resumable, row.message)
        if row.limit is not None and row.phase == "downloading":
            said = (*said, f"at most {size(row.limit)}/s")
        self._show(row.ref, row.phase, row.done, row.total, said)

    def _show(self, ref: str, phase: str, done: int | None, total: int | None, said: tuple[str, ...]) -> None:
        title = f"{clean_line(phase, 20)} {clean_line(ref, 120)}"
        if self._console.is_terminal:
            self._paint(title, done, total, said)
        elif phase != self._last_phase or time.monotonic() - self._last_line > LINE_EVERY_S:
            self._console.print(f"{title}: {' · '.join(said)}", soft_wrap=True)
            self._last_line = time.monotonic()
        self._last_phase = phase

    def _paint(self, title: str, done: int | None, total: int | None, said: tuple[str, ...]) -> None:
        from rich.text import Text

        text = Text(f"{title}\n{meter_line(done, total, said, self._console.width - 1)}")
        text.no_wrap, text.overflow = True, "ellipsis"
        self._live.update(text, refresh=True)


class DownloadBar(Bar):
    """The same for a transfer that the daemon carries out."""

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
) -> tuple[str, ...]:
    """Bytes, speed, time left, and what else a person should know; the most important first."""
    parts = [size(done) if total is None else f"{size(done)} of {size(total)}"]
    if rate:
        parts.append(f"{size(int(rate))}/s")
    if rate and eta_s is not None:
        parts.append(f"{duration(eta_s)} left")
    if message:
        parts.append(clean_line(message, 80))
    elif resumable is False and phase in ("downloading", "extracting"):
        parts.append("starts over after a stop")
    return tuple(parts)


def meter_line(done: int | None, total: int | None, said: tuple[str, ...], width: int) -> str:
    """The bar and as many figures as fit into `width`; the bar gives way first."""
    words = "  " + " · ".join(said)
    if not total or done is None:
        return words
    share = min(1.0, max(0.0, done / total))
    percent = f" {share * 100:3.0f} %"
    room = min(BAR_COLUMNS, width - len(words) - len(percent))
    if room < _LEAST_BAR:
        return percent + words
    full = round(share * room)
    return "━" * full + "╌" * (room - full) + percent + words
