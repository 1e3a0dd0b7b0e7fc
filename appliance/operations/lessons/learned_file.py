"""`learned.json`: read by anyone, written by one process at a time, bounded, and begun anew when broken."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveFloat, ValidationError

from appliance import processes
from appliance.store import layout

log = logging.getLogger("appliance.learning")

VERSION = 1
MAX_BYTES = 4 << 20
"""A larger file is none of ours."""
MODELS, BUILDS, PLACES, MEASURED, RAN_OUT = 64, 16, 16, 128, 32
"""So many entries are kept; the oldest go first."""
_WAIT_S = 2.0
_here = threading.Lock()
T = TypeVar("T")


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    at: float = 0.0
    """Unix time of the last change."""


class DeviceLesson(BaseModel):
    """One model with one build on one device."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    full: PositiveFloat | None = None
    partial: PositiveFloat | None = None
    overhead: NonNegativeInt | None = None


class ModelLesson(_Entry):
    """One model with one build."""

    devices: dict[str, DeviceLesson] = Field(default_factory=dict, max_length=PLACES)


class PlaceLesson(_Entry):
    """One build at one place, whatever the model."""

    total: NonNegativeInt | None = None
    """Bytes of the device: another number is another card."""
    overhead: NonNegativeInt | None = None
    bandwidth: PositiveFloat | None = None


class Measured(_Entry):
    """The engine's table: model, context, compute in bytes by place."""

    rows: dict[str, tuple[NonNegativeInt, NonNegativeInt, NonNegativeInt]] = Field(max_length=PLACES)


class RanOut(_Entry):
    """A plan that ran out of memory."""

    model: str
    build: str
    engine: str = ""
    """Which engine file, as a hash: another one with the same build may be another program."""
    where: str
    """The place; `unknown`: any, so that the figures are those of all devices."""
    needed: NonNegativeInt
    free: int | None


class Learnt(BaseModel):
    """The whole document."""

    model_config = ConfigDict(extra="forbid")

    v: int = VERSION
    models: dict[str, ModelLesson] = Field(default_factory=dict)
    builds: dict[str, dict[str, PlaceLesson]] = Field(default_factory=dict)
    measured: dict[str, Measured] = Field(default_factory=dict)
    ran_out: dict[str, RanOut] = Field(default_factory=dict)


def read(file: Path) -> Learnt:
    """What the file holds; nothing when there is none, or when it is broken (told as a warning)."""
    try:
        if file.stat().st_size > MAX_BYTES:
            raise ValueError("it is too large")
        found = Learnt.model_validate_json(file.read_bytes())
        if found.v != VERSION:
            raise ValueError(f"its version is {found.v}")
    except FileNotFoundError:
        return Learnt()
    except OSError as error:
        log.warning("%s can't be read (%s): what was learned is not used", file, error.strerror)
        return Learnt()
    except (ValueError, RecursionError) as error:
        why = f"{error.error_count()} values" if isinstance(error, ValidationError) else str(error)
        log.warning("%s is broken (%s): what was learned begins anew", file, why)
        return Learnt()
    return found


def change(file: Path, what: Callable[[Learnt], None]) -> None:
    """Read, change and replace the file, alone. Raises OSError; the file is then as it was.

    When another process does not let go of it in two seconds, nothing is changed: a lesson is no promise.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with _here, _alone(file.with_name("learned.lock")) as alone:
        if not alone:
            log.warning("%s is being written by another process; this lesson is lost", file)
            return
        for left in file.parent.glob(f".{file.name}.*"):
            left.unlink(missing_ok=True)  # half a write of a process that was killed
        known = read(file)
        before = known.model_copy(deep=True)
        what(known)
        _bound(known)
        if known != before:
            layout.write_json(file, known.model_dump(exclude_none=True), durable=False)


def _bound(known: Learnt) -> None:
    for places in known.builds.values():
        _newest(places, PLACES, lambda one: one.at)
    _newest(known.builds, BUILDS, lambda places: max((one.at for one in places.values()), default=0.0))
    _newest(known.models, MODELS, lambda one: one.at)
    _newest(known.measured, MEASURED, lambda one: one.at)
    _newest(known.ran_out, RAN_OUT, lambda one: one.at)


def _newest(entries: dict[str, T], count: int, at: Callable[[T], float]) -> None:
    for key in sorted(entries, key=lambda key: at(entries[key]))[: max(0, len(entries) - count)]:
        del entries[key]


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[bool]:
    """One writer at a time; False when it could not be had in time. The lock ends with its process."""
    with lock.open("w") as file:
        yield processes.locked_within(file.fileno(), _WAIT_S)
