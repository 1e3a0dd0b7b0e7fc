"""A plan as llama-server arguments, and back. Files and addresses are not among them.

Layers, context and `-fit off` always go together: with layers set and the context open, the engine's own fit
may cut the context to 4,096 tokens and say so only in its log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from appliance.planning.result import N_BATCH, FlashAttention
from appliance.planning.values import Split

Side = Literal["gpu", "cpu"]


@dataclass(frozen=True, slots=True)
class Flags:
    """What the arguments say."""

    gpu_layers: int
    ctx_total: int
    """Tokens of all slots: `-c`."""
    parallel: int
    kv_type: str
    flash_attn: FlashAttention
    n_ubatch: int
    n_batch: int = N_BATCH
    threads: int | None = None
    threads_batch: int | None = None
    """For prompts; None: as many as `threads`."""
    cache_reuse: int = 0
    split: Split = "layer"
    tensor_split: tuple[int, ...] = ()
    cpu_moe: int = 0
    mmproj: Side | None = None
    """None says nothing: on the GPU where there is one, if a projector is given at all."""
    draft: Side | None = None
    devices: tuple[str, ...] | None = None
    """The devices to use; () = none of them; None leaves all to the engine."""

    def render(self) -> tuple[str, ...]:
        """The arguments, in a fixed order."""
        flags = ["-ngl", str(self.gpu_layers), "-c", str(self.ctx_total), "-np", str(self.parallel)]
        flags += ["-fit", "off", "-ctk", self.kv_type, "-ctv", self.kv_type, "-fa", self.flash_attn]
        flags += ["-b", str(self.n_batch), "-ub", str(self.n_ubatch)]
        if self.threads:
            flags += ["-t", str(self.threads)]
        if self.threads_batch:
            flags += ["-tb", str(self.threads_batch)]
        if self.cache_reuse:
            flags += ["--cache-reuse", str(self.cache_reuse)]
        if self.split != "layer":
            flags += ["-sm", self.split]
        if self.tensor_split:
            flags += ["-ts", ",".join(map(str, self.tensor_split))]
        if self.cpu_moe:
            flags += ["-ncmoe", str(self.cpu_moe)]
        if self.mmproj == "cpu":
            flags.append("--no-mmproj-offload")
        if self.draft is not None:
            flags += ["-ngld", "all" if self.draft == "gpu" else "0"]
        if self.devices is not None:
            flags += ["-dev", ",".join(self.devices) or "none"]
        return tuple(flags)


def parse_flags(flags: Sequence[str]) -> Flags:
    """The arguments of a plan, read back. Raises KeyError or ValueError for any others."""
    found = dict(_pairs(flags))
    drafted = found.get("-ngld")
    split, flash = found.get("-sm", "layer"), found["-fa"]
    if split not in ("layer", "row", "tensor"):
        raise ValueError(split)
    return Flags(
        gpu_layers=int(found["-ngl"]),
        ctx_total=int(found["-c"]),
        parallel=int(found["-np"]),
        kv_type=found["-ctk"],
        flash_attn="on" if flash == "on" else "off" if flash == "off" else "auto",
        n_ubatch=int(found["-ub"]),
        n_batch=int(found.get("-b", N_BATCH)),
        threads=int(found["-t"]) if "-t" in found else None,
        threads_batch=int(found["-tb"]) if "-tb" in found else None,
        cache_reuse=int(found.get("--cache-reuse", 0)),
        split=split,  # type: ignore[arg-type]  # one of the three
        tensor_split=tuple(map(int, found["-ts"].split(","))) if "-ts" in found else (),
        cpu_moe=int(found.get("-ncmoe", 0)),
        mmproj="cpu" if "--no-mmproj-offload" in found else None,
        draft=None if drafted is None else "gpu" if drafted == "all" else "cpu",
        devices=_devices(found.get("-dev")),
    )


def _pairs(flags: Sequence[str]) -> Iterator[tuple[str, str]]:
    rest = iter(flags)
    for flag in rest:
        yield flag, "" if flag == "--no-mmproj-offload" else next(rest)


def _devices(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    return () if text == "none" else tuple(text.split(","))
