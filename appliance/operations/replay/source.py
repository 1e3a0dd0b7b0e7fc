"""Where a trace comes from: a file, a bundle of `doctor --bundle`, stdin, or this machine's journal.

Reading is all that is done: no daemon is asked, and the journal is not changed.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from appliance.errors import ApplianceError, UsageError
from appliance.journal.rows import Row
from appliance.journal.timeline import Entry, look_at_timeline, moment_of, read_timeline, to_line
from appliance.operations.replay.lines import MOST_BYTES, MOST_LINES
from appliance.operations.replay.understand import SHORTEST_SPEED
from appliance.units import duration, size

TIMELINE, SETTINGS = "timeline.jsonl", "settings.toml"
"""Members of a bundle."""
_MOST_SETTINGS = 1 << 20
_EARLIER_S = 7 * 86_400.0
_MOST_USUAL = 12
"""Replies of one model by one plan, the newest."""


@dataclass(frozen=True, slots=True)
class Source:
    """The bytes of a trace, and the settings that came with it."""

    name: str
    data: bytes
    settings: str | None = None
    """TOML text, of a bundle."""


def of_file(file: Path) -> Source:
    """A trace or a bundle. Raises UsageError."""
    try:
        if file.is_dir():
            raise UsageError(f"{file} is a folder.", hint="Name a trace, or a bundle of `appliance doctor`.")
        with file.open("rb") as opened:
            if opened.read(4) == b"PK\x03\x04":
                return _of_bundle(file, opened)
            opened.seek(0)
            return Source(str(file), _bounded(opened, str(file)))
    except OSError as error:
        raise UsageError(f"{file} can't be read.", cause=error.strerror, hint="Name a trace.") from None


def of_stream(stream: BinaryIO) -> Source:
    """A trace from stdin. Raises UsageError when it is too long."""
    return Source("stdin", _bounded(stream, "stdin"))


def of_journal(file: Path, now: float, last_s: float) -> Source:
    """The last part of this machine's timeline. Raises ApplianceError when there is none, or it can't be
    read."""
    if not file.exists():
        raise ApplianceError(f"There is no {file}: no daemon has run here yet.", hint="Serve a model first.")
    since = now - last_s
    lines = [json.dumps(to_line(entry)) for entry in entries(file, since, now)]
    if not lines:
        raise ApplianceError(
            f"The journal holds nothing of the last {duration(last_s)}.",
            cause="No sample, decision or request is in it.",
            hint="Ask for a longer time, like --last 1d, or serve a model first.",
        )
    return Source(
        f"the last {duration(last_s)} of this machine", "\n".join([*_usual(file, since), *lines]).encode()
    )


def _usual(file: Path, since: float) -> Iterator[str]:
    """Speeds of the cool replies before, as the usual ones: a trace of half an hour may hold none."""
    counts: dict[tuple[str, str], int] = {}
    for entry in reversed(read_timeline(file, since - _EARLIER_S, since).entries):
        if not isinstance(entry, Row) or entry.thermal != "cool" or entry.degraded or entry.route != "local":
            continue
        known = entry.served_model and entry.plan and entry.tokens_per_second
        if not known or entry.status >= 400 or (entry.tokens_out or 0) < SHORTEST_SPEED:
            continue
        key = (str(entry.served_model), str(entry.plan))
        counts[key] = counts.get(key, 0) + 1
        if counts[key] <= _MOST_USUAL:
            yield json.dumps(
                {
                    "at": since, "kind": "usual", "model": key[0], "plan": key[1],
                    "tokens_per_second": entry.tokens_per_second, "power": entry.power or "unknown",
                    "streams": entry.streams or 1,
                    "tokens": max(1, (entry.tokens_in or 0) + (entry.tokens_out or 0)),
                }
            )  # fmt: skip


def entries(file: Path, since: float, until: float, most: int = MOST_LINES) -> Iterator[Entry]:
    """The timeline of the journal in the order of time, page by page; the first `most` of it.

    Raises ApplianceError for a file that can't be read.
    """
    while most > 0 and since < until:
        page = look_at_timeline(file, since, until, newest=False)
        yield from page.entries[:most]
        most -= len(page.entries)
        if not page.more or not page.entries:
            return
        since = _after(moment_of(page.entries[-1]))


def _after(at: float) -> float:
    """The next moment that a clock can tell apart."""
    return at + 1e-6


def _bounded(stream: BinaryIO, name: str) -> bytes:
    data = stream.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise UsageError(
            f"{name} is too large for a trace.",
            cause=f"At most {size(MOST_BYTES)} are read.",
            hint="Cut out the minutes that matter: each line stands for itself.",
        )
    return data


def _of_bundle(file: Path, opened: BinaryIO) -> Source:
    try:
        with zipfile.ZipFile(opened) as archive:
            timeline = _member(archive, TIMELINE, MOST_BYTES)
            settings = _member(archive, SETTINGS, _MOST_SETTINGS)
    except (zipfile.BadZipFile, zlib.error, RuntimeError, EOFError, ValueError) as error:
        raise UsageError(f"{file} is a broken zip archive.", cause=str(error) or None) from None
    if timeline is None:
        raise UsageError(
            f"{file} holds no {TIMELINE}.",
            cause="It is no bundle of `appliance doctor --bundle`, or one without a timeline.",
            hint="README.txt in a bundle says what is missing in it, and why.",
        )
    return Source(f"{file}", timeline, None if settings is None else settings.decode("utf-8", "replace"))


def _member(archive: zipfile.ZipFile, name: str, most: int) -> bytes | None:
    """One file of the archive, unpacked; never more than is allowed, whatever the archive claims."""
    if name not in archive.namelist():
        return None
    with archive.open(name) as opened:
        data = opened.read(most + 1)
    if len(data) > most:
        raise ValueError(f"{name} in it is larger than {size(most)}")
    return data
