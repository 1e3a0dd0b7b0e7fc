"""The compute buffer by closed form.

The engine allocates the peak of its worst graph: a maximum over stages plus the attention masks, which stay
live. The forms were fitted on printed buffer lines of public logs and checked on others; on one GPU with
everything offloaded they hit within a few percent.
"""

from __future__ import annotations

from typing import Literal

from appliance.gguf import ModelShape
from appliance.planning.memory.cache import Load, quantised, window_cells

Era = Literal["new", "middle", "old"]
"""`new`: from about June 2026 (16-bit masks, few outputs); `middle` and `old` before."""


def mask_cells(shape: ModelShape, load: Load) -> int:
    """Cells of all masks: one mask for each kind of cache. Without a cache, a batch sees itself."""
    if shape.encoder:
        return load.n_ubatch
    full = any(c and not s for c, s in zip(shape.cache_layers, shape.swa_layers, strict=True))
    windowed = any(c and s for c, s in zip(shape.cache_layers, shape.swa_layers, strict=True))
    window = window_cells(shape, load) if windowed else 0
    return (load.ctx if full else 0) + window


def mask_bytes(shape: ModelShape, era: Era) -> int:
    """Bytes of one cell and token of the masks on a device.

    Before the new era a 4-byte mask and its 16-bit copy. An indexer has a mask of its own.
    """
    kinds = 2 if shape.indexer_k else 1
    return kinds * (2 if era == "new" else 6)


def live_floats(shape: ModelShape) -> int:
    """Floats per token that are live at the peak of the graph (S in the notes of the formula)."""
    e, ff = shape.n_embd, max(shape.n_ff, default=0)
    candidates = [3 * ff + 2 * e] if ff else [2 * e]
    if shape.n_expert:
        used, expert = shape.n_expert_used, shape.n_ff_exp
        candidates = [2 * used * e + 2 * e, 3 * used * expert + used * e + 4 * e]
    if shape.ssm_inner:
        candidates[0] += 0 if shape.n_expert else shape.ssm_inner
        candidates.append(7 * e + 5 * shape.ssm_inner)
    if shape.mla:  # a query in the width of the cache and a result in that of the values, for every head
        candidates.append(max(shape.n_head) * (shape.head_k + shape.head_v) + 5 * e)
    total = max(candidates)
    if shape.arch == "gemma4":
        total += max(shape.n_head) * max(shape.head_k, shape.head_k_swa)
        total += 2 * shape.n_embd_per_layer * shape.n_layer
    return total


def score_bytes(shape: ModelShape, load: Load) -> int:
    """Bytes of the indexer's scores: a float for each cell and token."""
    return 4 * load.ctx * load.n_ubatch if shape.indexer_k else 0


def rotation(shape: ModelShape, load: Load, which: int) -> int:
    """Bytes of the matrix that rotates keys (0) or values (1) before they are quantised; 0 = none does."""
    kind, head = (load.kv_v, shape.head_v) if which else (load.kv_k, shape.head_k)
    if not quantised(kind) or head % 64:
        return 0
    side = 64 if which else 64 * _largest_power(head // 64)
    return 4 * side * side


def _largest_power(value: int) -> int:
    """The largest power of two that divides it."""
    return value & -value


def gpu_compute(
    shape: ModelShape, load: Load, era: Era = "new", *, mask_copies: int = 1, kv_copy: int = 0
) -> int:
    """Compute buffer of a GPU when the whole model is on GPUs.

    `mask_copies` is 4 with several GPUs (pipeline parallelism). `kv_copy`: bytes of one block's cache in f16,
    which CUDA makes of a quantised one for its attention.
    """
    if not load.flash_attn:
        return _without_flash_attention(shape, load, mask_copies)
    cells = load.n_ubatch * mask_cells(shape, load)
    logits = logits_bytes(shape, load)
    masks = mask_copies * mask_bytes(shape, era) * cells
    if era == "new":
        stages = [load.unit * live_floats(shape) + score_bytes(shape, load)]
        if kv_copy:
            stages.append(kv_copy + 4 * load.unit * shape.n_embd)
        peak = masks + max(stages)
        return max(peak, logits) if load.n_outputs >= load.n_ubatch else peak
    heads = max(shape.n_head) * (shape.head_k + shape.head_v)
    compressed = heads > 8 * shape.n_embd  # as with MLA, which keeps more beside its wide heads
    attention = (5 if compressed else 2) * shape.n_embd + heads
    if era == "old":  # the holes that masks leave are too small for logits
        logits += 4 * cells
    return max(logits, masks + load.unit * attention)


def host_compute(shape: ModelShape, load: Load, era: Era = "new", *, mask_copies: int = 1) -> int:
    """The part of the compute buffers that stays in RAM when a GPU works."""
    cells = load.n_ubatch * mask_cells(shape, load)
    if era == "new":
        inputs = load.unit * (2 * shape.n_embd + shape.n_embd_per_layer * shape.n_layer)
        kinds = 2 if any(shape.swa_layers) else 1
        inputs += kinds * (rotation(shape, load, 0) + rotation(shape, load, 1))
        return mask_copies * mask_bytes(shape, era) * cells + inputs
    return mask_copies * 4 * cells + load.unit * 2 * shape.n_embd


def cpu_compute(shape: ModelShape, load: Load, era: Era = "new") -> int:
    """Compute buffer of a run without a GPU: one buffer for both parts, with one mask."""
    extra = load.unit * 2 * shape.n_embd if era == "new" else 0
    return gpu_compute(shape, load, era) + extra


def output_bytes(shape: ModelShape, n_outputs: int) -> int:
    """The buffer of logits in RAM."""
    return 4 * shape.n_vocab * n_outputs


def _without_flash_attention(shape: ModelShape, load: Load, mask_copies: int) -> int:
    scores = 4 * load.ctx * load.n_ubatch * max(shape.n_head)
    mask = mask_copies * 4 * load.n_ubatch * mask_cells(shape, load)
    attention = scores + mask + load.unit * 4 * shape.n_embd
    return max(attention, logits_bytes(shape, load))


def logits_bytes(shape: ModelShape, load: Load) -> int:
    """Bytes of the logits of a whole batch; an encoder has none."""
    return 0 if shape.encoder else load.unit * (shape.n_vocab + shape.n_embd)
