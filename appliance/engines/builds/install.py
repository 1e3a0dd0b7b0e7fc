"""One install: resolve, fetch, hold against hash and pin, unpack, and give it its name. Runs in a thread.

Nothing has the build's name before everything is there and proven: a kill leaves a scratch folder, which the
next install removes.
"""

from __future__ import annotations

import logging
import secrets
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.tags import Tag

from appliance.engines.builds import contents, fetch, pins, records, source, unpack, wheels
from appliance.engines.builds.dates import day_of
from appliance.engines.builds.fetch import Fetched, Step, Tell
from appliance.engines.builds.records import Installed, Pin
from appliance.engines.builds.source import Found
from appliance.engines.builds.variants import Wanted
from appliance.engines.floor import OLD, age
from appliance.engines.values import EngineKind
from appliance.errors import EngineError
from appliance.paths import Paths
from appliance.store.threads import StopFlag
from appliance.web import Client, shown

log = logging.getLogger("appliance.engines")


@dataclass(frozen=True, slots=True)
class Order:
    """What to install."""

    wanted: Wanted
    source: str | None
    """What the user named; None: the publisher's index."""
    version: str | None
    """Of the xllamacpp of our environment; None: the newest."""
    allow_old: bool = False
    tags: Sequence[Tag] | None = None
    """Those of this interpreter and system, unless a test gives others."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A build that is here now."""

    record: Installed
    fresh: bool
    """False: the very same was here already."""
    notes: tuple[str, ...]


def install(paths: Paths, order: Order, tell: Tell, stop: StopFlag) -> Outcome:
    """Bring one build here; it is not test-loaded yet. Only for who is `records.alone`.

    Raises EngineError, DownloadError, DiskFull, UsageError; Stopped when asked to stop.
    """
    tell(Step("resolving", order.source or "the publisher's index"))
    with Client() as client:
        with stop.calling(client.abort):
            stop.check()
            found = source.find(
                client, order.source, order.wanted,
                version=order.version, tags=order.tags or wheels.here(),
            )  # fmt: skip
        _judge(found, order)
        here = _same(paths, found)
        if here is not None:
            return Outcome(here, False, found.notes)
        _require_place(paths)
        scratch = records.scratch(paths, secrets.token_hex(4))
        try:
            return _brought(client, paths, order, found, scratch, tell, stop)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def name_of(found: Found) -> str:
    """`cu128-2026.10.11549`; of another project than xllamacpp its name and version."""
    one = found.candidate
    stem = found.variant if one.project == source.PROJECT else one.project
    return f"{stem}-{one.version}"


def _judge(found: Found, order: Order) -> None:
    """Refuse, before a byte is fetched, what would be refused afterwards. Raises EngineError."""
    link = found.candidate.link
    kind: EngineKind = "xllamacpp" if found.candidate.project == source.PROJECT else "llama-server"
    if age(kind, found.candidate.version) == "old" and not order.allow_old:
        raise EngineError(
            f"{link.file} is refused: it is below the security floor.",
            cause=OLD,
            hint="Take a newer one, or `appliance config set engine.allow_old true`.",
        )
    if found.path is not None:
        return
    if link.sha256 is None:
        raise EngineError(
            f"{link.file} is refused: the index states no SHA-256 for it.",
            cause="Without a hash nobody can tell whether the file is what its publisher made.",
            hint="Use an index that states hashes, or name the wheel: --source URL#sha256=HASH.",
        )
    source.require_allowed(link.url, order.source)


def _same(paths: Paths, found: Found) -> Installed | None:
    """The build that is here already with the very bytes that the index states."""
    here = records.find(paths, name_of(found))
    return here if here is not None and here.sha256 == found.candidate.link.sha256 else None


def _require_place(paths: Paths) -> None:
    here = records.installed(paths)
    if len(here) >= records.MOST_BUILDS:
        raise EngineError(
            f"{len(here)} builds are installed; more are not kept.",
            hint=f"`appliance engines rm {here[-1].name}` removes the oldest.",
        )


def _brought(
    client: Client,
    paths: Paths,
    order: Order,
    found: Found,
    scratch: Path,
    tell: Tell,
    stop: StopFlag,
) -> Outcome:
    link, wheel = found.candidate.link, scratch / found.candidate.link.file
    if found.path is not None:
        got = fetch.copy(found.path, wheel, tell=tell, stop=stop)
    else:
        got = fetch.download(client, link.url, link.file, wheel, size=link.size, tell=tell, stop=stop)
    _prove(paths, found, got)
    here = records.find(paths, name_of(found))
    if here is not None and here.sha256 == got.sha256:
        return Outcome(here, False, found.notes)
    files = scratch / "build" / records.FILES
    files.parent.mkdir()
    on_disk = unpack.unpack(wheel, files, tell=tell, stop=stop)
    record = _record(order, found, got, files, on_disk)
    records.write_record(files.parent, record)
    stop.check()
    _pin(paths, record)
    fresh = _moved(paths, files.parent, record)
    return Outcome(fresh, True, found.notes)


def _prove(paths: Paths, found: Found, got: Fetched) -> None:
    """The stated hash first, then the pin. Raises EngineError."""
    link = found.candidate.link
    if link.sha256 is not None and got.sha256 != link.sha256:
        raise EngineError(
            f"{link.file} is refused: it is not the file that the index states.",
            cause=f"Its SHA-256 is {got.sha256}; stated is {link.sha256}.",
            hint="Install again. If it stays so, the source is damaged or was tampered with: do not use it.",
        )
    pins.check(records.read_state(paths).pins, link.file, found.variant, got.sha256)


def _record(order: Order, found: Found, got: Fetched, files: Path, on_disk: int) -> Installed:
    one, inside = found.candidate, contents.look(files)
    day = day_of(inside.kind, one.version, inside.package)
    return Installed(
        name=name_of(found), backend=order.wanted.backend, variant=found.variant, project=one.project,
        kind=inside.kind, version=one.version, date=None if day is None else day.day,
        date_about=day is not None and day.about, file=one.link.file, url=_from(found), sha256=got.sha256,
        size=got.size, on_disk=on_disk, installed_at=time.time(), program=inside.program,
    )  # fmt: skip


def _from(found: Found) -> str:
    return str(found.path) if found.path is not None else shown(found.candidate.link.url)


def _pin(paths: Paths, record: Installed) -> None:
    state = records.read_state(paths)
    pin = Pin(
        variant=record.variant, sha256=record.sha256, url=record.url, version=record.version,
        date=record.date, at=record.installed_at,
    )  # fmt: skip
    known = pins.added(state.pins, record.file, pin)
    records.write_state(paths, state.model_copy(update={"pins": known}))


def _moved(paths: Paths, made: Path, record: Installed) -> Installed:
    """Give the build its name; an older one of that name goes. Raises EngineError."""
    target = records.folder(paths, record.name)
    try:
        if target.exists():
            unpack.remove(target)
        made.rename(target)
    except OSError as error:
        raise records.unwritable(target, error) from None
    return record
