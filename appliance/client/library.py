"""The smaller documents: catalog rows, engine builds, settings and log pages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar

from appliance.client.fields import Document, mapping, rows, text, whole
from appliance.text import clean


@dataclass(frozen=True, slots=True)
class FitRow(Document):
    """Where a model would run here: `where` is gpu, partly, cpu or no, `text` says why in one line.

    `how` is measured (by the engine), computed (from its header) or rule (from its size alone).
    """

    where: str | None
    text: str | None
    how: str | None
    estimated: bool | None


def _fit(value: object) -> FitRow | None:
    """The object, or the word alone."""
    return FitRow.parse({"where": value} if isinstance(value, str) else value) if value else None


@dataclass(frozen=True, slots=True)
class CatalogRow(Document):
    """One model variant; `state` is here, absent, downloading, damaged or another word of the store.

    `pin` is where its hash comes from (catalog, user, hub), `arrived` the bytes of an unfinished transfer,
    `disk` the bytes it takes, `used_at` the Unix time of its last load.
    """

    READERS: ClassVar[Mapping[str, Callable[[object], object]]] = {"fits": _fit}

    ref: str
    id: str
    quant: str | None
    family: str | None
    name: str | None
    size: int | None
    params: float | None
    context: int | None
    license: str | None
    license_note: str | None
    use: tuple[str, ...]
    state: str
    loaded: bool | None
    source: str | None
    path: str | None
    fits: FitRow | None
    pin: str | None
    arrived: int | None
    disk: int | None
    used_at: float | None


@dataclass(frozen=True, slots=True)
class BuildRow(Document):
    """An engine build that was found on this machine."""

    kind: str | None
    path: str | None
    version: str | None
    build: str
    sees_gpu: bool | None
    note: str | None


@dataclass(frozen=True, slots=True)
class ChosenRow(Document):
    """The build in use, and why this one."""

    READERS: ClassVar[Mapping[str, Callable[[object], object]]] = {
        "build": lambda value: text(mapping(value).get("build")) if isinstance(value, dict) else text(value)
    }

    build: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class EngineList(Document):
    """What can be started here."""

    READERS: ClassVar[Mapping[str, Callable[[object], object]]] = {
        "engines": rows(BuildRow),
        "chosen": ChosenRow.parse,
    }

    engines: tuple[BuildRow, ...]
    chosen: ChosenRow


@dataclass(frozen=True, slots=True)
class SettingRow(Document):
    """One setting, its value as JSON gives it (`value` is not cleaned), and where it comes from."""

    READERS: ClassVar[Mapping[str, Callable[[object], object]]] = {"value": lambda value: value}

    key: str
    value: object
    source: str | None


def _log_lines(value: object) -> tuple[str, ...]:
    items = value if isinstance(value, list) else []
    rows = (mapping(item) if isinstance(item, dict) else {"line": item} for item in items)
    return tuple(
        clean(f"[{row['engine']}] {row['line']}" if isinstance(row.get("engine"), str) else row["line"])
        for row in rows
        if isinstance(row.get("line"), str)
    )


@dataclass(frozen=True, slots=True)
class LogPage(Document):
    """Log lines, cleaned; ask again with `after=next`. Each names its engine where several have a log."""

    READERS: ClassVar[Mapping[str, Callable[[object], object]]] = {
        "lines": _log_lines,
        "next": lambda value: whole(value) or 0,
    }

    lines: tuple[str, ...]
    next: int


@dataclass(frozen=True, slots=True)
class EventRow(Document):
    """What happened to an engine: `kind` is loaded, unloaded, evicted, crashed, restarted, failed, ..."""

    number: int | None
    at: float | None
    kind: str
    ref: str | None
    text: str
    detail: str | None


@dataclass(frozen=True, slots=True)
class EventPage(Document):
    """Events, oldest first; ask again with `after=next`."""

    READERS: ClassVar[Mapping[str, Callable[[object], object]]] = {
        "events": rows(EventRow),
        "next": lambda value: whole(value) or 0,
    }

    events: tuple[EventRow, ...]
    next: int


def names(ref: str, listed: Collection[str]) -> bool:
    """A list of the settings names this model: as `id:QUANT`, or its id alone."""
    return ref in listed or ref.partition(":")[0] in listed
