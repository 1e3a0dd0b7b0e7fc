"""Which candidate to take: what people would choose, within what was asked and what fits.

Where something has to give, the order is: KV type (not below the floor), context (not below 4,096 tokens or
the model's own), layers. What was asked for explicitly never gives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from appliance.gguf import ModelShape
from appliance.planning.cache import PAD, pad, quantised
from appliance.planning.estimate import Candidate, Estimate, Estimator
from appliance.planning.values import KV_TYPES, PlanRequest

MIN_CTX = 4_096
CHAT_CTX = 8_192
_CHAT_BONUS_CTX = 16_384
_UNKNOWN_TRAINED = 32_768
_DOCS_ON_CPU = 32_768
_WIDEST = 131_072


@dataclass(frozen=True, slots=True)
class Choice:
    """A candidate with its bytes, and what was wanted before something had to give."""

    candidate: Candidate
    estimate: Estimate
    fits: bool
    wanted: Candidate


def choose(estimator: Estimator) -> Choice:
    """The best candidate that fits; else the smallest one, with `fits` False."""
    request = estimator.request
    if not estimator.devices:
        return _by_rungs(estimator, 0, rungs(estimator, on_gpu=False))
    ladder = rungs(estimator, on_gpu=True)
    if request.gpu_layers is not None:
        layers = clamp_layers(estimator, request.gpu_layers)
        return _by_rungs(estimator, layers, ladder if layers else rungs(estimator, on_gpu=False))
    full = _by_rungs(estimator, estimator.all_layers, ladder)
    return full if full.fits else _partial(estimator, ladder)


def clamp_layers(estimator: Estimator, asked: int) -> int:
    """Layers as the engine takes them: a negative number and more than all mean all."""
    return estimator.all_layers if asked < 0 else min(asked, estimator.all_layers)


def fits(estimator: Estimator, estimate: Estimate) -> bool:
    """Whether everything fits beside the reserve. What is unknown is taken to fit; the plan says so."""
    return devices_fit(estimator, estimate) and host_fits(estimator, estimate)


def devices_fit(estimator: Estimator, estimate: Estimate) -> bool:
    """Whether the devices' part fits."""
    reserve = estimator.request.reserve
    return all(
        used.total == 0 or device.free is None or used.total <= device.free - reserve
        for device, used in zip(estimator.devices, estimate.devices, strict=True)
    )


def host_fits(estimator: Estimator, estimate: Estimate) -> bool:
    """Whether the part in RAM fits."""
    available = estimator.host.available
    return available is None or estimate.host.total <= available - estimator.request.reserve


def _by_rungs(estimator: Estimator, layers: int, ladder: list[Candidate]) -> Choice:
    """The first rung that fits with this many layers, else the last one."""
    wanted = _with_layers(ladder[0], layers)
    candidate, estimate = wanted, estimator.estimate(wanted)
    for rung in ladder:
        candidate = _with_layers(rung, layers)
        estimate = estimator.estimate(candidate)
        if fits(estimator, estimate):
            return Choice(candidate, estimate, True, wanted)
    return Choice(candidate, estimate, False, wanted)


def _partial(estimator: Estimator, ladder: list[Candidate]) -> Choice:
    """As many layers as fit with everything else at its floor; without any, a plan for RAM."""
    wanted = _with_layers(ladder[0], estimator.all_layers)
    short_of_ram: Choice | None = None
    for layers in range(estimator.all_layers - 1, 0, -1):
        candidate = _with_layers(ladder[-1], layers)
        estimate = estimator.estimate(candidate)
        if devices_fit(estimator, estimate):
            if host_fits(estimator, estimate):
                return Choice(candidate, estimate, True, wanted)
            short_of_ram = short_of_ram or Choice(candidate, estimate, False, wanted)
    in_ram = _by_rungs(estimator, 0, rungs(estimator, on_gpu=False))
    if not in_ram.fits and short_of_ram is not None:
        return short_of_ram
    return Choice(in_ram.candidate, in_ram.estimate, in_ram.fits, wanted)


def rungs(estimator: Estimator, *, on_gpu: bool) -> list[Candidate]:
    """Contexts, slots and KV types from the wanted down to the floor (layers are filled in later)."""
    request, shape = estimator.request, estimator.shape
    kv = kv_choices(shape, request)
    trained = _trained(shape)
    if request.profile == "docs":
        pairs = _docs_pairs(trained, kv, on_gpu)
    elif request.profile == "batch":
        pairs = [(MIN_CTX, slots, kv[0]) for slots in (16, 8, 4)]
        pairs += [(MIN_CTX, 4, kind) for kind in kv[1:]]
    else:
        pairs = [(_CHAT_BONUS_CTX, 4, kv[0])] if on_gpu else []
        pairs += [(CHAT_CTX, slots, kv[0]) for slots in (4, 3, 2)]
        pairs += [(CHAT_CTX, 2, kind) for kind in kv[1:]]
        pairs += [(MIN_CTX, 2, kv[-1])]
    found: dict[Candidate, None] = {}
    for ctx, slots, kind in pairs:
        asked = pad(request.ctx) if request.ctx else min(ctx, trained)
        parallel = request.parallel or (1 if estimator.in_process_server else slots)
        found[Candidate(0, asked, parallel, kind)] = None
    return list(found)


def kv_choices(shape: ModelShape, request: PlanRequest) -> tuple[str, ...]:
    """KV types that may be taken, the wanted one first."""
    if request.kv_type:
        return (request.kv_type,)
    if shape.head_k % 32 or shape.head_v % 32 or not any(shape.cache_layers) or request.kv_floor == "f16":
        return ("f16",)
    low = KV_TYPES.index(request.kv_floor) if request.kv_floor in KV_TYPES else 1
    return KV_TYPES[: low + 1]


def _docs_pairs(trained: int, kv: tuple[str, ...], on_gpu: bool) -> list[tuple[int, int, str]]:
    ctx = min(trained, _WIDEST if on_gpu else _DOCS_ON_CPU)
    pairs: list[tuple[int, int, str]] = []
    while True:
        pairs += [(ctx, 1, kind) for kind in kv]
        if ctx <= MIN_CTX:
            return pairs
        ctx = max(ctx // 2 // PAD * PAD, MIN_CTX)


def _trained(shape: ModelShape) -> int:
    """The trained context rounded down to what the engine pads to, so that auto never goes beyond it."""
    return max((shape.n_ctx_train or _UNKNOWN_TRAINED) // PAD * PAD, PAD)


def _with_layers(rung: Candidate, layers: int) -> Candidate:
    return Candidate(layers, rung.ctx, rung.parallel, rung.kv_type)


def smallest_change(estimator: Estimator, failed: Candidate) -> str | None:
    """One option that alone would make `failed` fit, in the order in which things should give."""
    if not quantised(failed.kv_type) and len(KV_TYPES) > 1 and not estimator.shape.head_k % 32:
        smaller = Candidate(failed.gpu_layers, failed.ctx, failed.parallel, "q8_0")
        if any(estimator.shape.cache_layers) and fits(estimator, estimator.estimate(smaller)):
            return "--kv q8_0"
    ctx = _largest(
        lambda n: Candidate(failed.gpu_layers, n * PAD, failed.parallel, failed.kv_type),
        failed.ctx // PAD - 1,
        estimator,
    )
    if ctx:
        return f"--ctx {ctx * PAD}"
    slots = _largest(
        lambda n: Candidate(failed.gpu_layers, failed.ctx, n, failed.kv_type), failed.parallel - 1, estimator
    )
    if slots:
        return f"--parallel {slots}"
    for layers in range(failed.gpu_layers - 1, -1, -1):
        fewer = Candidate(layers, failed.ctx, failed.parallel, failed.kv_type)
        if fits(estimator, estimator.estimate(fewer)):
            return f"--gpu-layers {layers}"
    return None


def _largest(candidate: Callable[[int], Candidate], high: int, estimator: Estimator) -> int:
    """The largest n from 1 to `high` whose candidate fits, 0 = none. Memory grows with n."""
    low = 0
    while low < high:
        middle = (low + high + 1) // 2
        if fits(estimator, estimator.estimate(candidate(middle))):
            low = middle
        else:
            high = middle - 1
    return low
