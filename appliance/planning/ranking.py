"""Which member of a family to take: every size and quantisation, judged for one machine and the goals. Pure.

The rule stands in docs/planner.md: first what a member does here (all on the GPU at the decode goal with the
profile's base context; then at the goal elsewhere; then with less context; then under the goal), and among
equals the better model. Better is by parameters and quantisation, after two published rules of thumb:

- "The case for 4-bit precision" (Dettmers and Zettlemoyer, 2023): in the same bytes, more parameters at 4
  bits beat fewer at 8; at 3 bits that no longer holds.
- llama.cpp's perplexities of k-quants (pull request 1684): Q6_K loses next to nothing, Q4_K_M about a
  hundredth, Q3_K_M four times that, Q2_K fifteen times.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from appliance.planning.choice.estimate import driver_overhead
from appliance.planning.choice.profiles import CHAT_CTX, MIN_CTX
from appliance.planning.plan import usable_devices
from appliance.planning.result import Plan
from appliance.planning.rough import Fit, Where
from appliance.planning.speed.reads import Read
from appliance.planning.speed.rule import tokens_per_second
from appliance.planning.values import DeviceMemory, HostMemory, PlanRequest, Profile

Kind = Literal["chat", "other", "embedding", "rerank"]
Standing = Literal["gpu_at_goal", "at_goal", "short_context", "below_goal", "unknown", "no"]
"""What a member does on this machine, from the best to the worst."""

_KINDS: tuple[Kind, ...] = ("chat", "other", "embedding", "rerank")
_STANDINGS: tuple[Standing, ...] = (
    "gpu_at_goal", "at_goal", "short_context", "below_goal", "unknown", "no",
)  # fmt: skip
_KEPT = ((1.5, 0.05), (2.0, 0.12), (2.6, 0.27), (3.0, 0.40), (3.5, 0.55), (3.9, 0.72), (4.3, 0.85),
         (4.85, 0.93), (5.5, 0.96), (6.6, 0.985), (8.5, 1.0), (16.0, 1.002))  # fmt: skip
"""Share of a model's size that quality keeps, by bits per weight; on straight lines between these."""
_BASE_CTX: dict[Profile, int] = {"chat": CHAT_CTX, "docs": 16_384, "batch": MIN_CTX}
_TYPICAL_LAYERS = 32
_GPU_LAYER_S = 60e-6


@dataclass(frozen=True, slots=True)
class Rated:
    """One variant of one member, judged for a machine. None: unknown."""

    ref: str
    kind: Kind
    n_bytes: int
    """Of the model's own files."""
    params: float | None
    bits: float | None
    """Per weight."""
    restricted: bool
    """Commercial use is not allowed, or in doubt: never the first."""
    where: Where | None
    """`gpu` only with the experts there, too."""
    ctx: int | None
    """Tokens per request of its plan; None: by size alone, which has no plan."""
    decode: float | None
    """Tokens per second with an empty context, estimated."""
    active: float | None = None
    """Parameters that one token uses; None: all of them."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """A place in the ranking, and why."""

    row: Rated
    standing: Standing
    reason: str


def rank(rows: Sequence[Rated], *, decode_goal: float, base_ctx: int | None = None) -> tuple[Ranked, ...]:
    """From the best to the worst. `base_ctx` are the tokens that a request should have, None: any number.

    Members for another use come after those for chat, those of limited licence after all others that fit, and
    what does not fit at the end. An unknown speed counts as reached.
    """
    placed = [Ranked(row, *_standing(row, decode_goal, base_ctx)) for row in rows]
    return tuple(sorted(placed, key=lambda one: _key(one, decode_goal)))


def base_ctx_of(profile: Profile, trained: int | None = None) -> int:
    """The context per request that a profile is for, within what the model was trained on."""
    base = _BASE_CTX[profile]
    return base if not trained else min(base, trained)


def quality(row: Rated) -> float:
    """How good a model is, in billions of parameters that count: for comparing within a family only.

    Of a mixture of experts the geometric mean of all and active parameters; a rule of thumb, too.
    """
    params = row.params or (row.n_bytes * 8 / row.bits if row.bits else row.n_bytes)
    if row.active:
        params = (params * min(row.active, params)) ** 0.5
    return params / 1e9 * kept(row.bits)


def kept(bits: float | None) -> float:
    """Share of its size that a model keeps at so many bits per weight. Never falls with more bits."""
    if bits is None:
        return _KEPT[-1][1]
    if bits <= _KEPT[0][0]:
        return _KEPT[0][1]
    for (low, a), (high, b) in pairwise(_KEPT):
        if bits <= high:
            return a + (b - a) * (bits - low) / (high - low)
    return _KEPT[-1][1]


def bits_of(quant: str) -> float | None:
    """Bits per weight that a quantisation's name stands for, roughly; None: not a known form."""
    if re.fullmatch(r"B?F16|BF16", quant, re.IGNORECASE):
        return 16.0
    if re.fullmatch(r"F32", quant, re.IGNORECASE):
        return 32.0
    found = re.match(r"(?:UD-)?(IQ|TQ|Q|MXFP|NVFP)(\d)", quant, re.IGNORECASE)
    if found is None:
        return None
    more = {"IQ": 0.3, "TQ": 0.1, "MXFP": 0.25, "NVFP": 0.5}.get(found[1].upper(), 0.6)
    return int(found[2]) + more


def active_params(text: str, params: float | None) -> float | None:
    """Of a mixture of experts, what one token uses, as a name (`30b-a3b`) or a note (`3.3B active`) tells."""
    found = re.search(r"\b(\d+(?:\.\d+)?)B active\b", text) or re.search(
        r"(?:^|[-_ ])a(\d+(?:\.\d+)?)b(?:$|[-_ :])", text, re.IGNORECASE
    )
    active = float(found[1]) * 1e9 if found else None
    return active if active and (params is None or active < params) else None


def where_of(plan: Plan) -> Where:
    """`fit_of` with a stricter `gpu`: experts in RAM are a part of the model that is not there."""
    if not plan.fits:
        return "no"
    if not plan.gpu_layers:
        return "cpu"
    return "gpu" if plan.gpu_layers > plan.n_layer and not plan.cpu_moe else "partly"


def rough_speed(
    fit: Fit,
    n_bytes: int,
    active_share: float,
    devices: Sequence[DeviceMemory],
    host: HostMemory,
    request: PlanRequest,
) -> float | None:
    """Tokens per second with an empty context where only the size is known; None: a bandwidth is unknown.

    `active_share` is the part of the weights that a token reads.
    """
    used = usable_devices(devices, request) if fit.where in ("gpu", "partly") else ()
    rooms = [max(0, (d.free or 0) - request.reserve - driver_overhead(d)) for d in used]
    on_gpu = n_bytes if fit.where == "gpu" else min(sum(rooms), n_bytes) if fit.where == "partly" else 0
    if fit.where not in ("gpu", "partly", "cpu"):
        return None
    shares = [room / (sum(rooms) or 1) for room in rooms]
    reads = [
        Read(int(on_gpu * share * active_share), device.bandwidth, device.bandwidth_seen,
             round(_TYPICAL_LAYERS * share), True, _GPU_LAYER_S)
        for device, share in zip(used, shares, strict=True)
    ]  # fmt: skip
    left = int((n_bytes - on_gpu) * active_share)
    return tokens_per_second(
        [*reads, Read(left, host.bandwidth, host.bandwidth_seen, _TYPICAL_LAYERS if left else 0, False)]
    )


def _standing(row: Rated, goal: float, base_ctx: int | None) -> tuple[Standing, str]:
    if row.where == "no":
        return "no", "does not fit"
    if row.where is None:
        return "unknown", "whether it fits is not known"
    place = {"gpu": "on the GPU", "partly": "partly in RAM", "cpu": "in RAM"}[row.where]
    if row.kind == "chat" and row.decode is not None and row.decode < goal:
        return "below_goal", f"{place}, under the goal of {goal:g} tokens/s"
    if row.kind == "chat" and base_ctx and row.ctx is not None and row.ctx < base_ctx:
        return "short_context", f"{place}, but only {row.ctx} tokens of context"
    return ("gpu_at_goal" if row.where == "gpu" else "at_goal"), place


def _key(one: Ranked, goal: float) -> tuple[object, ...]:
    row, standing = one.row, _STANDINGS.index(one.standing)
    speed = -min(row.decode or 0.0, goal) if one.standing == "below_goal" else 0.0
    return (
        _KINDS.index(row.kind),
        one.standing in ("unknown", "no"),
        row.restricted,
        standing,
        speed,
        -quality(row) if one.standing != "no" else row.n_bytes,
        row.n_bytes,
        row.ref,
    )
