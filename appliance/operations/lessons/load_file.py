"""`load_times.json`: read by anyone, written by one process at a time, bounded, begun anew when broken."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveFloat, ValidationError

from appliance import processes
from appliance.store import layout

log = logging.getLogger("appliance.learning")

VERSION = 1
MAX_BYTES = 1 << 20
"""A larger file is none of ours."""
LOADS, DISKS = 128, 16
"""So many entries are kept; the oldest go first."""
_WAIT_S = 2.0
_here = threading.Lock()


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class LoadEntry(_Part):
    """One load."""

    seconds: PositiveFloat
    n_bytes: NonNegativeInt
    cached: float | None = Field(default=None, ge=0, le=1)
    engine_s: float | None = Field(default=None, ge=0)
    disk_bytes_per_s: PositiveFloat | None = None
    preheated: bool = False
    at: float = 0.0


class ModelEntry(_Part):
    """One model with one build at one place: its last loads."""

    model: str = Field(max_length=64)
    warm: LoadEntry | None = None
    cold: LoadEntry | None = None
    at: float = 0.0


class DiskEntry(_Part):
    """One disk."""

    name: str = Field(max_length=200)
    bytes_per_s: PositiveFloat
    at: float = 0.0


class Document(_Part):
    """The whole file."""

    v: int = VERSION
    loads: dict[str, ModelEntry] = Field(default_factory=dict)
    disks: dict[str, DiskEntry] = Field(default_factory=dict)


class _Dated(Protocol):
    at: float


T = TypeVar("T", bound=_Dated)


def read(file: Path) -> Document:
    """What the file holds; nothing when there is none, or when it is broken (told as a warning)."""
    try:
        if file.stat().st_size > MAX_BYTES:
            raise ValueError("it is too large")
        found = Document.model_validate_json(file.read_bytes())
        if found.v != VERSION:
            raise ValueError(f"its version is {found.v}")
    except FileNotFoundError:
        return Document()
    except OSError as error:
        log.warning("%s can't be read (%s): how long loads took is not known", file, error.strerror)
        return Document()
    except (ValueError, RecursionError) as error:
        why = f"{error.error_count()} values" if isinstance(error, ValidationError) else str(error)
        log.warning("%s is broken (%s): it begins anew", file, why)
        return Document()
    return found


def change(file: Path, what: Callable[[Document], None]) -> None:
    """Read, change and replace the file, alone (mode 0600). Raises OSError; the file is then as it was.

    When another process does not let go of it in two seconds, nothing is changed.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with _here, _alone(file.with_name(f"{file.stem}.lock")) as alone:
        if not alone:
            log.warning("%s is being written by another process; this load is not noted", file)
            return
        for left in file.parent.glob(f".{file.name}.*"):
            left.unlink(missing_ok=True)  # half a write of a process that was killed
        known = read(file)
        what(known)
        _newest(known.loads, LOADS)
        _newest(known.disks, DISKS)
        layout.write_json(file, known.model_dump(exclude_none=True), durable=False)


def _newest(entries: dict[str, T], count: int) -> None:
    for key in sorted(entries, key=lambda key: entries[key].at)[: max(0, len(entries) - count)]:
        del entries[key]


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[bool]:
    """One writer at a time; False when it could not be had in time. The lock ends with its process."""
    with lock.open("w") as file:
        yield processes.locked_within(file.fileno(), _WAIT_S)
