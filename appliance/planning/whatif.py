"""What if: context and KV type against layers and speed, for one model on one machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from appliance.gguf import Header
from appliance.planning.choice.estimate import Estimator
from appliance.planning.choice.profiles import MIN_CTX, trained_ctx
from appliance.planning.choice.search import choose
from appliance.planning.plan import usable_devices
from appliance.planning.values import (
    KV_TYPES,
    DeviceMemory,
    HostMemory,
    Learned,
    Lora,
    PlanRequest,
    Projector,
)

_CONTEXTS = (4_096, 8_192, 16_384, 32_768, 65_536, 131_072, 262_144)


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What one request would get with this context and KV type."""

    ctx: int
    kv_type: str
    fits: bool
    gpu_layers: int
    cpu_moe: int
    parallel: int
    decode: float | None
    """Tokens per second with an empty context, estimated; None: a bandwidth is unknown."""
    decode_full: float | None
    """The same with the context filled."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def what_if(
    header: Header,
    devices: Sequence[DeviceMemory],
    host: HostMemory,
    request: PlanRequest,
    *,
    engine_build: str | None,
    parallel: int,
    mmproj: Projector | None = None,
    draft: Header | None = None,
    adapters: Sequence[Lora] = (),
    learned: Mapping[str, Learned] | None = None,
) -> tuple[WhatIf, ...]:
    """One row per context up to the trained one and KV type, all else as asked, `parallel` slots in each.

    Computed by formula, which takes a few milliseconds a row; a KV type that the heads don't allow is left
    out.
    """
    used = usable_devices(devices, request)
    rows = []
    for kv_type in KV_TYPES:
        for ctx in _CONTEXTS:
            asked = replace(request, ctx=ctx, kv_type=kv_type, parallel=request.parallel or parallel)
            estimator = Estimator(
                header,
                used,
                host,
                asked,
                engine_build=engine_build,
                mmproj=mmproj,
                draft=draft,
                adapters=adapters,
                learned=learned or {},
            )
            if ctx > max(trained_ctx(estimator.shape), MIN_CTX) or not _can(estimator, kv_type):
                break
            rows.append(_row(estimator))
    return tuple(rows)


def _can(estimator: Estimator, kv_type: str) -> bool:
    shape = estimator.shape
    return kv_type == "f16" or (not shape.head_k % 32 and not shape.head_v % 32 and any(shape.cache_layers))


def _row(estimator: Estimator) -> WhatIf:
    choice = choose(estimator)
    taken = choice.candidate
    return WhatIf(
        ctx=taken.ctx,
        kv_type=taken.kv_type,
        fits=choice.fits,
        gpu_layers=taken.gpu_layers,
        cpu_moe=taken.cpu_moe,
        parallel=taken.parallel,
        decode=estimator.speed(taken, 0),
        decode_full=estimator.speed(taken, taken.ctx),
    )
