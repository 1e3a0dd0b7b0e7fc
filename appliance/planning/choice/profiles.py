"""What each profile would like, from the most to the least that is still worth calling by its name.

The rule and its reasons stand in docs/planner.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from appliance.gguf import ModelShape
from appliance.planning.choice.estimate import Estimator
from appliance.planning.memory.cache import PAD, Load, kv_bytes, pad
from appliance.planning.values import KV_TYPES, PlanRequest

MIN_CTX = 4_096
"""No profile goes below it by itself."""
CHAT_CTX = 8_192
_CHAT_MORE = 16_384
_DOCS_LEAST = 16_384
_DOCS_MOST_ON_CPU = 32_768
_WIDEST = 131_072
_UNKNOWN_TRAINED = 32_768
_BATCH_MOST = 16
_BATCH_MOST_ON_CPU = 4
_BATCH_LEAST = 2
_BATCH_FILLED = 1_024
"""Tokens that a slot of a batch job holds on average."""
UBATCHES = (2_048, 1_024, 512)
UBATCH = 512
"""Of the engine by default, and the least that a plan goes down to."""

Room = Callable[[int], bool]
"""Whether this much context per request is possible at the lowest quality."""


@dataclass(frozen=True, slots=True)
class Want:
    """Context per request and slots."""

    ctx: int
    slots: int


def wants(estimator: Estimator, *, on_gpu: bool, fast: bool, docs_room: Room) -> list[Want]:
    """From the most to the profile's base; what was asked for stands in every one of them.

    `fast`: one request alone decodes at the goal, so that there is speed to share.
    """
    request, trained = estimator.request, trained_ctx(estimator.shape)
    if request.profile == "docs":
        found = [Want(_docs_ctx(min(trained, _WIDEST if on_gpu else _DOCS_MOST_ON_CPU), docs_room), 1)]
    elif request.profile == "batch":
        found = [Want(MIN_CTX, slots) for slots in _halved(knee(estimator, on_gpu))]
    else:
        found = [Want(_CHAT_MORE, 4)] if on_gpu else []
        found += [Want(CHAT_CTX, slots) for slots in ((4, 3, 2) if on_gpu or fast else (2,))]
    seen: dict[Want, None] = {}
    for want in found:
        ctx = pad(request.ctx) if request.ctx else min(want.ctx, trained)
        slots = request.parallel or (1 if estimator.in_process_server else want.slots)
        seen[Want(ctx, slots)] = None
    return list(seen)


def floor_ctx(estimator: Estimator) -> int:
    """Where cutting the context ends: as asked, else the profile's least within the trained context."""
    if estimator.request.ctx:
        return pad(estimator.request.ctx)
    least = _DOCS_LEAST if estimator.request.profile == "docs" else MIN_CTX
    return min(least, trained_ctx(estimator.shape))


def trained_ctx(shape: ModelShape) -> int:
    """The trained context rounded down to what the engine pads to, so that auto never goes beyond it."""
    return max((shape.n_ctx_train or _UNKNOWN_TRAINED) // PAD * PAD, PAD)


def knee(estimator: Estimator, on_gpu: bool) -> int:
    """Slots up to which one more pays: a power of two.

    A step of n requests reads the weights once and n caches; twice the slots give at least 1.5 times the
    tokens while n <= weights / (2 * cache of one request). On a CPU its own speed ends it at 4 slots.
    """
    shape = estimator.shape
    most = _BATCH_MOST if on_gpu else _BATCH_MOST_ON_CPU
    cache = kv_bytes(shape, Load(_BATCH_FILLED, 1, _BATCH_FILLED, "f16", "f16", 1))
    slots = most
    while slots > _BATCH_LEAST and cache and slots > estimator.weights.total / (2 * cache):
        slots //= 2
    return slots


def ubatches(estimator: Estimator, ctx: int, *, on_gpu: bool) -> tuple[int, ...]:
    """Tokens worked on at once, the wanted number first. Some models must take their input in one piece."""
    request, real = estimator.request, on_gpu and not all(d.software for d in estimator.devices)
    if estimator.in_one_piece:
        return (max(request.n_ubatch or UBATCH, pad(ctx)),)
    if request.n_ubatch is not None:
        return (request.n_ubatch,)
    found = UBATCHES if real and not estimator.in_process_server else (UBATCH,)
    least = 0 if estimator.mmproj is None else estimator.mmproj.n_ubatch  # a picture goes in one piece
    return tuple(dict.fromkeys(max(size, least) for size in found))


def kv_choices(shape: ModelShape, request: PlanRequest) -> tuple[str, ...]:
    """KV types that may be taken, the wanted one first."""
    if request.kv_type:
        return (request.kv_type,)
    if shape.head_k % 32 or shape.head_v % 32 or not any(shape.cache_layers) or request.kv_floor == "f16":
        return ("f16",)
    low = KV_TYPES.index(request.kv_floor) if request.kv_floor in KV_TYPES else 1
    return KV_TYPES[: low + 1]


def largest(low: int, high: int, fits: Callable[[int], bool]) -> int:
    """The largest n from `low` to `high` that fits, when what is needed grows with n; `low` - 1 = none."""
    low -= 1
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _docs_ctx(most: int, room: Room) -> int:
    """As much as there is room for, in steps of 1,024; at least what the profile is for."""
    least = min(_DOCS_LEAST, most)
    step = 1_024
    found = largest(least // step, most // step, lambda n: room(n * step)) * step
    return max(found, least)


def _halved(slots: int) -> list[int]:
    return [slots >> n for n in range(slots.bit_length()) if slots >> n >= min(_BATCH_LEAST, slots)]
