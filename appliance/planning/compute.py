"""The compute buffer by closed form.

The engine allocates the peak of its worst graph: a maximum over stages plus the attention masks, which stay
live. The forms were fitted on printed buffer lines of public logs and checked on others; on one GPU with
everything offloaded they hit within a few percent. With part of the model in RAM they are bounds, and the
engine's own measurement replaces them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from appliance.gguf import ModelShape
from appliance.planning.cache import Load, f16_copy_bytes, kv_layer_bytes, quantised, window_cells
from appliance.planning.placement import Placement
from appliance.planning.values import DeviceMemory
from appliance.planning.weights import Weights

Era = Literal["new", "middle", "old"]
"""`new`: from about June 2026 (16-bit masks, few outputs); `middle` and `old` before."""

_FIRST_NEW_BUILD = 9_496
_FIRST_MIDDLE_BUILD = 7_342
_PIPELINE_COPIES = 4
_COPYING = frozenset({"cuda", "rocm"})  # backends that turn a quantised cache into f16 for attention


@dataclass(frozen=True, slots=True)
class Compute:
    """Compute buffers in bytes."""

    devices: tuple[int, ...]
    """In the order of the planned devices."""
    host: int
    """In RAM: the part beside the devices, or all of it when none works."""
    output: int
    """The buffer of logits, also in RAM; the engine's table does not count it."""


class ComputeModel:
    """Compute buffers of one model for any settings and placement: the one door to the forms below."""

    def __init__(self, shape: ModelShape, weights: Weights, era: Era = "new") -> None:
        self.shape, self.weights, self.era = shape, weights, era
        self._blocks = tuple(map(sum, weights.blocks))

    def of(self, load: Load, placement: Placement, devices: Sequence[DeviceMemory]) -> Compute:
        """Without devices, or without layers on any, all is in `host`."""
        output = output_bytes(self.shape, load.slots)
        if not devices or not placement.gpu_layers:
            return Compute((0,) * len(devices), cpu_compute(self.shape, load, self.era), output)
        found = tuple(self._device(index, load, placement, d) for index, d in enumerate(devices))
        host = host_compute(self.shape, load, self.era)
        if placement.pipelined:
            host += (_PIPELINE_COPIES - 1) * 2 * load.n_ubatch * mask_cells(self.shape, load)
        return Compute(found, host, output)

    def _device(self, index: int, load: Load, placement: Placement, device: DeviceMemory) -> int:
        copy = 0
        if device.backend in _COPYING and quantised(load.kv_k):
            copy = max(f16_copy_bytes(self.shape, load, il) for il in range(self.shape.n_layer))
        on_host = placement.on_host
        moe = max(
            (
                max(self.weights.experts[il], default=0)
                for il in range(min(placement.cpu_moe, self.shape.n_layer))
            ),
            default=0,
        )
        if index > 0 or not (on_host or moe):  # the first device works for what lies in RAM
            copies = _PIPELINE_COPIES if placement.pipelined else 1
            return gpu_compute(self.shape, load, self.era, mask_copies=copies, kv_copy=copy)
        return partial_compute(
            self.shape,
            load,
            layer_weights=max(max((self._blocks[il] for il in on_host), default=0), 5 * moe // 2),
            layer_kv=max((kv_layer_bytes(self.shape, load, il) for il in on_host), default=0),
            kv_copy=copy,
        )


def era_of(engine_build: str) -> Era:
    """The era of a build from its text; new when it names no number, since older builds are not run."""
    match = re.search(r"\bb(\d{4,5})\b", engine_build)
    if match is None or int(match[1]) >= _FIRST_NEW_BUILD:
        return "new"
    return "middle" if int(match[1]) >= _FIRST_MIDDLE_BUILD else "old"


def mask_cells(shape: ModelShape, load: Load) -> int:
    """Cells of all masks: one mask for each kind of cache."""
    full = any(c and not s for c, s in zip(shape.cache_layers, shape.swa_layers, strict=True))
    windowed = any(c and s for c, s in zip(shape.cache_layers, shape.swa_layers, strict=True))
    window = window_cells(shape, load) if windowed else 0
    return (load.ctx if full else 0) + window


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
    total = max(candidates)
    if shape.arch == "gemma4":
        total += max(shape.n_head) * max(shape.head_k, shape.head_k_swa)
        total += 2 * shape.n_embd_per_layer * shape.n_layer
    return total


def gpu_compute(
    shape: ModelShape, load: Load, era: Era = "new", *, mask_copies: int = 1, kv_copy: int = 0
) -> int:
    """Compute buffer of a GPU when the whole model is on GPUs.

    `mask_copies` is 4 with several GPUs (pipeline parallelism). `kv_copy`: bytes of one block's cache in f16,
    which CUDA makes of a quantised one for its attention.
    """
    if not load.flash_attn:
        return _without_flash_attention(shape, load)
    masks, logits = mask_cells(shape, load), load.unit * (shape.n_vocab + shape.n_embd)
    if era == "new":
        stages = [load.unit * live_floats(shape)]
        if kv_copy:
            stages.append(kv_copy + 4 * load.unit * shape.n_embd)
        peak = mask_copies * 2 * load.n_ubatch * masks + max(stages)
        return max(peak, logits) if load.n_outputs >= load.n_ubatch else peak
    attention = 2 * shape.n_embd + max(shape.n_head) * shape.head_k
    return max(logits, 6 * load.n_ubatch * masks + load.unit * attention)


def partial_compute(
    shape: ModelShape, load: Load, *, layer_weights: int, layer_kv: int, kv_copy: int = 0
) -> int:
    """Bound for a GPU that holds a part of the blocks.

    For long batches the weights of a block in RAM are copied to the GPU, with a second copy of the masks; for
    its attention the block's cache is. Checked against the engine's own table on a Vulkan device.
    """
    masks = 2 * load.n_ubatch * mask_cells(shape, load)
    feed_forward = load.unit * live_floats(shape) + masks + layer_weights
    attention = layer_kv + 4 * load.unit * shape.n_embd
    bound = masks + max(feed_forward, attention)
    return max(bound, gpu_compute(shape, load, kv_copy=kv_copy))


def host_compute(shape: ModelShape, load: Load, era: Era = "new") -> int:
    """The part of the compute buffers that stays in RAM when a GPU works."""
    masks = mask_cells(shape, load)
    if era == "new":
        inputs = load.unit * (2 * shape.n_embd + shape.n_embd_per_layer * shape.n_layer)
        return 2 * load.n_ubatch * masks + inputs
    return 4 * load.n_ubatch * masks + load.unit * 2 * shape.n_embd


def cpu_compute(shape: ModelShape, load: Load, era: Era = "new") -> int:
    """Compute buffer of a run without a GPU: one buffer for both parts, with one mask."""
    extra = load.unit * 2 * shape.n_embd if era == "new" else 0
    return gpu_compute(shape, load, era) + extra


def output_bytes(shape: ModelShape, n_outputs: int) -> int:
    """The buffer of logits in RAM."""
    return 4 * shape.n_vocab * n_outputs


def _without_flash_attention(shape: ModelShape, load: Load) -> int:
    scores = 4 * load.ctx * load.n_ubatch * max(shape.n_head)
    mask = 4 * load.n_ubatch * mask_cells(shape, load)
    attention = scores + mask + load.unit * 4 * shape.n_embd
    return max(attention, load.unit * (shape.n_vocab + shape.n_embd))
