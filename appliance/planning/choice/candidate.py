"""One way to start the engine, and what it takes at each place."""

from __future__ import annotations

from dataclasses import dataclass

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
    formula: int = 0
    """The compute buffer by formula alone, before what was learned: not a part of the total."""

    @property
    def total(self) -> int:
        return self.model + self.kv + self.compute + self.overhead

    def __add__(self, other: Bytes) -> Bytes:
        return Bytes(
            self.model + other.model,
            self.kv + other.kv,
            self.compute + other.compute,
            self.overhead + other.overhead,
            self.formula + other.formula,
        )


@dataclass(frozen=True, slots=True)
class Estimate:
    """A candidate in bytes; `devices` in the order of the planned devices."""

    devices: tuple[Bytes, ...]
    host: Bytes
    refused: tuple[int, int] | None = None
    """(Device index, bytes) of a cache tensor that is larger than the device takes in one piece."""
