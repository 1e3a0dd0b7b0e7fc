"""`status --watch`: the status again and again, through restarts of the daemon, until Ctrl-C."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from appliance.cli.ends import INTERRUPTED, OutputFailed
from appliance.cli.output import emit, say
from appliance.cli.status_text import NO_DAEMON, status_lines
from appliance.client import Client, StatusSnapshot
from appliance.errors import ApplianceError, NoDaemon
from appliance.paths import Paths
from appliance.units import about

LOOK_AGAIN_S = 1.0
_BREATH_S = 0.2
_SILENT_S = 20.0
"""The daemon pings every 15 seconds; one that is silent for longer is taken for lost."""


@dataclass(frozen=True, slots=True)
class Look:
    """The daemon at one moment."""

    snapshot: StatusSnapshot | None
    """None while none answers."""
    lost_since: float | None = None
    """Unix time."""
    first: bool = False
    """It has just been lost."""


def looks(
    connect: Callable[[], Client],
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.time,
) -> Iterator[Look]:
    """For ever: a look on each change, and one a second while the daemon is lost.

    Raises NoDaemon when there is none to begin with.
    """
    client = connect()
    while True:
        for shot in _shots(client, sleep):
            yield Look(shot)
        sleep(_BREATH_S)  # one that is stopping ends each stream at once
        lost, first = clock(), True
        while True:
            try:
                client = connect()
                break
            except ApplianceError:
                yield Look(None, lost, first)
                first = False
                sleep(LOOK_AGAIN_S)


def _shots(client: Client, sleep: Callable[[float], None]) -> Iterator[StatusSnapshot]:
    """Until the daemon is lost. One that gives no stream is asked once a second."""
    try:
        try:
            yield from client.events(silence_s=_SILENT_S)
        except NoDaemon:
            raise
        except ApplianceError:
            while True:
                yield client.status()
                sleep(LOOK_AGAIN_S)
    except ApplianceError:
        return


class Face(Protocol):
    """Where it is shown."""

    def show(self, look: Look) -> None:
        """Called with each look."""
        ...


class JsonLines:
    """One document on a line; a daemon that is lost is one, too."""

    def show(self, look: Look) -> None:
        if look.snapshot is not None:
            emit(look.snapshot.raw)
        elif look.first:
            emit(NO_DAEMON)


class Blocks:
    """For pipes and files: a block with its time when something else is to be said."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._shown: Sequence[str] = ()

    def show(self, look: Look) -> None:
        if look.snapshot is None:
            if look.first:
                self._shown = ()
                self._block(["Daemon    lost, looking..."])
            return
        lines = list(status_lines(look.snapshot, self._clock()))
        if lines[1:] != self._shown:  # the first one has the uptime
            self._shown = lines[1:]
            self._block(lines)

    def _block(self, lines: Sequence[str]) -> None:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self._clock()))
        say("\n".join([f"--- {when}", *lines]))


class Screen:
    """A terminal: drawn over itself in one write, line by line, so that nothing flickers. No colours."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._last: StatusSnapshot | None = None

    def show(self, look: Look) -> None:
        now, self._last = self._clock(), look.snapshot or self._last
        head = time.strftime("%H:%M:%S", time.localtime(now)) + " · Ctrl-C ends"
        lines = [head]
        if look.snapshot is None and look.lost_since is not None:
            lines.append(f"Daemon    lost for {about(now - look.lost_since)}, looking... what it said last:")
        if self._last is not None:
            lines += list(status_lines(self._last, now))[1 if look.snapshot is None else 0 :]
        width, height = shutil.get_terminal_size((80, 24))
        _paint(fitted(lines, width, height))


def fitted(lines: Sequence[str], width: int, height: int) -> list[str]:
    """The lines as they fit a terminal: cut at the right, and said so when some are missing below."""
    shown = [line if len(line) <= width else f"{line[: width - 1]}…" for line in lines]
    if len(shown) <= height:
        return shown
    return [
        *shown[: height - 1],
        f"… {len(shown) - height + 1} more lines: a taller terminal shows them"[:width],
    ]


def _paint(lines: Sequence[str]) -> None:
    _write("\x1b[H" + "\x1b[K\r\n".join(lines) + "\x1b[K\x1b[J")


def _write(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        raise OutputFailed(error) from None


def watch(paths: Paths, *, as_json: bool) -> int:
    """Show it until Ctrl-C; the exit code. Raises NoDaemon when there is none to begin with."""
    on_screen = not as_json and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    face: Face = JsonLines() if as_json else Screen() if on_screen else Blocks()
    if hasattr(signal, "SIGTERM"):
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        found = looks(lambda: Client.connect(paths))
        first = next(found)
        with _own_screen() if on_screen else _nothing():
            face.show(first)
            for look in found:
                face.show(look)
    except KeyboardInterrupt:
        pass
    return INTERRUPTED


@contextmanager
def _own_screen() -> Iterator[None]:
    """The terminal's second screen without a cursor; what stood there before comes back."""
    _write("\x1b[?1049h\x1b[?25l")
    try:
        yield
    finally:
        _write("\x1b[?25h\x1b[?1049l")


@contextmanager
def _nothing() -> Iterator[None]:
    yield
