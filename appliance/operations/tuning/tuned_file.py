"""`tuned.json`: which settings were the best here, by model, engine and kind of plan.

Read by anyone, written by one process at a time, bounded, private, and begun anew when broken. No name of a
model or of a file is in it.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    ValidationError,
)

from appliance import processes
from appliance.engines import Build
from appliance.operations.tuning.knobs import Knobs
from appliance.planning import Plan
from appliance.store import layout

log = logging.getLogger("appliance.tuning")

VERSION = 1
MAX_BYTES = 1 << 20
"""A larger file is none of ours."""
ENTRIES = 64
"""So many are kept; the oldest go first."""
Goal = Literal["throughput", "latency"]
_WAIT_S = 2.0
_here = threading.Lock()


class Entry(BaseModel):
    """What a measurement found. Speeds are over those of the engine's own defaults."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, frozen=True)

    at: NonNegativeFloat
    """Unix time."""
    goal: Goal
    threads: PositiveInt | None
    threads_batch: PositiveInt | None
    n_batch: PositiveInt = Field(le=1 << 20)
    n_ubatch: PositiveInt = Field(le=1 << 20)
    flash_attn: Literal["on", "off", "auto"]
    prefill: PositiveFloat
    decode: PositiveFloat
    many: PositiveFloat | None
    """With all slots at work."""
    load: float | None
    """The machine's load average when it was over: a busy one measures badly."""

    @property
    def knobs(self) -> Knobs:
        return Knobs(self.threads, self.threads_batch, self.n_batch, self.n_ubatch, self.flash_attn)


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    v: int = VERSION
    tuned: dict[str, Entry] = Field(default_factory=dict)


def key_of(model_sha256: str, build: Build, plan: Plan) -> str:
    """What a measurement holds for: this model in this engine, with the work at the same places.

    Context and slots are not in it: what is best for two slots is for four. The planned threads are, since
    with other cores, or another quota of a container, it begins anew.
    """
    places = ",".join(place.name for place in plan.devices)
    what = (
        model_sha256, build.build, build.path or "", places, plan.gpu_layers, plan.cpu_moe, plan.split,
        plan.kv_type, plan.threads,
    )  # fmt: skip
    return hashlib.sha256("\n".join(map(str, what)).encode(errors="replace")).hexdigest()[:32]


def read(file: Path) -> Mapping[str, Entry]:
    """What the file holds; nothing when there is none, or when it is broken (told as a warning)."""
    try:
        if file.stat().st_size > MAX_BYTES:
            raise ValueError("it is too large")
        found = _File.model_validate_json(file.read_bytes())
        if found.v != VERSION:
            raise ValueError(f"its version is {found.v}")
    except FileNotFoundError:
        return {}
    except OSError as error:
        log.warning("%s can't be read (%s): plans are made without it", file, error.strerror)
        return {}
    except (ValueError, RecursionError) as error:
        why = f"{error.error_count()} values" if isinstance(error, ValidationError) else str(error)
        log.warning("%s is broken (%s): what was tuned begins anew", file, why)
        return {}
    return found.tuned


def keep(file: Path, key: str, entry: Entry) -> bool:
    """Note an entry. False when the disk does not take it, or another process does not let go of the file."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _here, _alone(file.with_name("tuned.lock")) as alone:
            if not alone:
                log.warning("%s is being written by another process; this measurement is lost", file)
                return False
            known = {**read(file), key: entry}
            newest = sorted(known, key=lambda one: known[one].at, reverse=True)[:ENTRIES]
            document = _File(tuned={one: known[one] for one in newest}).model_dump()
            layout.write_json(file, document, durable=False)
    except OSError as error:
        log.warning("what was tuned can't be kept: %s", error.strerror or type(error).__name__)
        return False
    return True


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[bool]:
    """One writer at a time; False when it could not be had in time. The lock ends with its process."""
    with lock.open("w") as file:
        yield processes.locked_within(file.fileno(), _WAIT_S)
