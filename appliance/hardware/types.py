"""What a machine has, as frozen values. Sizes are bytes; None means that it could not be read, never zero."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

Backend = Literal["cuda", "rocm", "metal", "vulkan"]
"""The engine build that can use the GPU best; `vulkan` where there is no better one."""

TroubleState = Literal[
    "library_missing",
    "driver_not_loaded",
    "version_mismatch",
    "not_supported",
    "no_permission",
    "container",
    "no_gpu",
    "gpu_lost",
    "reset_required",
    "insufficient_power",
    "irq_issue",
    "corrupted_inforom",
    "not_ready",
    "operating_system",
    "out_of_memory",
    "no_answer",
    "unknown_error",
]


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a driver, or one GPU, can't be used: one message, one thing to do."""

    state: TroubleState
    message: str
    fix: str

    def __str__(self) -> str:
        return f"{self.message} {self.fix}"


@dataclass(frozen=True, slots=True)
class Program:
    """A running program that holds memory of a GPU."""

    pid: int
    name: str
    """`firefox`; `process 1234` where it can't be read."""
    n_bytes: int | None
    """None where the driver does not tell (Windows, WSL)."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One physical GPU. Virtual display adapters are not GPUs."""

    id: str
    """The vendor's UUID where it has one, else `pci:ADDRESS`. Indices move between boots, this does not."""
    index: int
    name: str
    backend: Backend
    total: int | None = None
    free: int | None = None
    used: int | None = None
    """Allocated by programs; what the driver keeps for itself is in neither `free` nor `used`."""
    driver: str | None = None
    integrated: bool | None = None
    """It shares the system's RAM."""
    pci: str | None = None
    """`0000:01:00.0`, lower case."""
    asleep: bool = False
    """The kernel has powered it down, and it was left so: memory and sensors are unknown."""
    holders: tuple[Program, ...] = ()
    """Programs that hold its memory, the largest first, as far as the driver shows them to this user."""
    apart: int | None = None
    """Bytes of `free` that are no RAM though it is integrated: what the firmware set aside for it."""

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Gpu:
        """Read what `asdict` gave. Raises KeyError or TypeError for another shape."""
        return cls(**{**document, "holders": tuple(Program(**held) for held in document["holders"])})


@dataclass(frozen=True, slots=True)
class Battery:
    """The battery of this machine."""

    percent: float | None
    plugged: bool | None


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine at one moment."""

    gpus: tuple[Gpu, ...] = ()
    ram_total: int | None = None
    """Physical RAM, or the limit of this container where that is lower."""
    ram_available: int | None = None
    cores_physical: int | None = None
    cores_logical: int | None = None
    battery: Battery | None = None
    cpu_name: str | None = None
    notes: tuple[str, ...] = ()
    """Sentences for people: why there is no GPU, or what is known only in part."""
    cores_performance: int | None = None
    """Physical cores of the fast kind; None: the system does not tell which those are."""
    trouble: Trouble | None = None
    """Why a GPU of `gpus` can't be used now, where its driver says so."""

    def to_json(self) -> dict[str, Any]:
        """A document that `from_json` reads back."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Machine:
        """Read `to_json`'s document. Raises KeyError or TypeError for another shape."""
        known = {field.name for field in fields(cls)}
        values = {key: value for key, value in document.items() if key in known}
        battery = values.get("battery")
        values["battery"] = Battery(**battery) if battery is not None else None
        trouble = values.get("trouble")
        values["trouble"] = Trouble(**trouble) if trouble is not None else None
        values["gpus"] = tuple(Gpu.from_json(gpu) for gpu in document["gpus"])
        values["notes"] = tuple(str(note) for note in document["notes"])
        return cls(**values)
