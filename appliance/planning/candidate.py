"""One way to start the engine, and what it takes at each place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from appliance.planning.cache import Load
from appliance.planning.flags import Side


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to start the engine."""

    gpu_layers: int
    ctx: int
    parallel: int
    kv_type: str
    n_ubatch: int = 512
    cpu_moe: int = 0
    mmproj: Side | None = None
    draft: Side | None = None
    shares: tuple[int, ...] = ()
    """Proportions of the devices, 0 for one that is left out; () = no device works."""


@dataclass(frozen=True, slots=True)
class Bytes:
    """What one place has to hold."""

    model: int = 0
    kv: int = 0
    compute: int = 0
    overhead: int = 0

    @property
    def total(self) -> int:
        return self.model + self.kv + self.compute + self.overhead

    def __add__(self, other: Bytes) -> Bytes:
        return Bytes(
            self.model + other.model,
            self.kv + other.kv,
            self.compute + other.compute,
            self.overhead + other.overhead,
        )


@dataclass(frozen=True, slots=True)
class Estimate:
    """A candidate in bytes; `devices` in the order of the planned devices."""

    devices: tuple[Bytes, ...]
    host: Bytes


class Draft(Protocol):
    """A draft model: a second, small model that guesses tokens ahead."""

    @property
    def weights(self) -> int:
        """Bytes of its weights."""

    def cost(self, load: Load, *, on_gpu: bool) -> tuple[Bytes, Bytes]:
        """What it takes (on the device, in RAM) beside a target with these settings."""
