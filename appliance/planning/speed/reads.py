"""What one generated token reads, by place: the bytes that decide how fast a model decodes.

A token passes all blocks, so every weight that takes part is read once: of routed experts only the chosen
ones, of the input embedding one row (counted as nothing), of a tied model the output copy. Attention reads
the cached rows of its request, a recurrent block reads its state and writes it back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby

from appliance.gguf import ModelShape
from appliance.planning.memory.cache import Load, row_bytes, window_cells
from appliance.planning.memory.placement import Placement
from appliance.planning.memory.weights import Weights
from appliance.planning.values import DeviceMemory, HostMemory

CPU_LAYER_S = 20e-6
"""Seconds that the cores of a CPU wait for each other in one block: about twenty barriers of 1 us."""
_GPU_LAYER_S = {"cuda": 40e-6, "vulkan": 40e-6, "rocm": 80e-6, "metal": 150e-6}
_GPU_LAYER_DEFAULT_S = 80e-6
"""Starting the kernels of one block, by backend; `speed.py` says how it was found."""


@dataclass(frozen=True, slots=True)
class Read:
    """What one token of one request reads at one place."""

    n_bytes: int
    bandwidth: float | None
    """Bytes per second, as the place states it; None: unknown."""
    seen: bool
    """The bandwidth follows from speeds measured here."""
    layers: int
    """Blocks with work here, output head included. One whose experts are elsewhere counts at both places."""
    on_gpu: bool
    layer_s: float = CPU_LAYER_S
    """Seconds that a block takes here beside reading."""


class ReadModel:
    """What a token reads, for many candidates of one model, whose own numbers are added up once."""

    def __init__(self, shape: ModelShape, weights: Weights) -> None:
        self._shape = shape
        self._weights = weights
        self._trunk = shape.n_layer - shape.n_layer_nextn  # MTP heads sleep while nobody drafts with them
        self._rows = tuple(_rows(shape, il) for il in range(self._trunk))
        self._caches_of = lru_cache(maxsize=64)(self._caches)
        self._sums_of = lru_cache(maxsize=16)(self._sums)

    def of(
        self,
        load: Load,
        placement: Placement,
        devices: Sequence[DeviceMemory],
        host: HostMemory,
        filled: int,
    ) -> tuple[Read, ...]:
        """One read per device, in their order, and last the one of RAM; places that are not read are empty.

        `filled` are the tokens that the request has in its context. With a row or tensor split the devices
        read at the same time; this counts them one after the other, which is the slowest that can be.
        Raises nothing; an encoder, which generates no tokens, is counted as one pass.
        """
        off = len(devices)
        n_bytes, layers = [0] * (off + 1), [0] * (off + 1)
        caches, whole = self._caches_of(load, max(filled, 0)), self._sums_of(None)
        for device, first, end in self._runs(placement):
            there, cached = off if device is None else device, caches[end] - caches[first]
            layers[there] += end - first
            if device is None:
                n_bytes[off] += whole.with_experts[end] - whole.with_experts[first] + cached
                continue
            sums = self._sums_of(devices[device].max_tensor)
            without = end <= placement.cpu_moe
            taken, split = (sums.dense, sums.split_dense) if without else (sums.with_experts, sums.split)
            here = taken[end] - taken[first]
            n_bytes[device] += here + cached
            n_bytes[off] += whole.with_experts[end] - whole.with_experts[first] - here
            layers[off] += split[end] - split[first]
        self._add_output(placement, devices, n_bytes, layers)
        reads = [
            Read(n_bytes[i], d.bandwidth, d.bandwidth_seen, layers[i], True, gpu_layer_s(d.backend))
            for i, d in enumerate(devices)
        ]
        return (*reads, Read(n_bytes[off], host.bandwidth, host.bandwidth_seen, layers[off], False))

    def _runs(self, placement: Placement) -> Iterator[tuple[int | None, int, int]]:
        """Neighbouring blocks at one place: (device, first, end), cut where experts stop being in RAM."""
        first, moe = 0, placement.cpu_moe
        for device, group in groupby(placement.blocks[: self._trunk]):
            end = first + sum(1 for _ in group)
            if first < moe < end:
                yield device, first, moe
                first = moe
            yield device, first, end
            first = end

    def _add_output(
        self, placement: Placement, devices: Sequence[DeviceMemory], n_bytes: list[int], layers: list[int]
    ) -> None:
        whole = self._weights.output_on(None)
        there = 0
        if placement.output is not None:
            there = self._weights.output_on(devices[placement.output].max_tensor)
            n_bytes[placement.output] += there
            layers[placement.output] += 1
        n_bytes[-1] += whole - there
        layers[-1] += whole > there

    def _sums(self, limit: int | None) -> _Sums:
        """What a device with that largest tensor reads of the blocks before each one."""
        shape, weights = self._shape, self._weights
        share = shape.n_expert_used / shape.n_expert if 0 < shape.n_expert_used < shape.n_expert else 1.0
        dense, experts, split, split_dense = [0], [0], [0], [0]
        for il in range(self._trunk):
            mine = weights.block_on(il, limit, experts=False)
            routed = weights.block_on(il, limit) - mine
            whole = sum(weights.blocks[il])
            dense.append(dense[-1] + mine)
            experts.append(experts[-1] + round(routed * share))
            split.append(split[-1] + (whole > mine + routed))
            split_dense.append(split_dense[-1] + (whole > mine))
        both = tuple(a + b for a, b in zip(dense, experts, strict=True))
        return _Sums(tuple(dense), both, tuple(split), tuple(split_dense))

    def _caches(self, load: Load, filled: int) -> tuple[int, ...]:
        """Bytes of the cached rows and of the recurrent state of the blocks before each one."""
        shape = self._shape
        full = min(filled, load.ctx)
        window = min(full, window_cells(shape, load)) if shape.n_swa else full
        made = [0]
        for il, (key, value, indexer) in enumerate(self._rows):
            row = row_bytes(key, load.kv_k) + row_bytes(value, load.kv_v)
            n_bytes = row * (window if shape.swa_layers[il] else full)
            n_bytes += full * row_bytes(indexer, load.kv_k)
            n_bytes += 8 * shape.state_floats if shape.recurrent_layers[il] else 0
            made.append(made[-1] + n_bytes)
        return tuple(made)


@dataclass(frozen=True, slots=True)
class _Sums:
    """Over the blocks before each one, so that a run of blocks is one subtraction."""

    dense: tuple[int, ...]
    """Bytes without routed experts."""
    with_experts: tuple[int, ...]
    """Bytes with the used share of them."""
    split: tuple[int, ...]
    """Blocks of which a part stays in RAM, since the device does not take all tensors."""
    split_dense: tuple[int, ...]
    """The same when the experts stay there anyway."""


def between(empty: Sequence[Read], full: Sequence[Read], share: float) -> tuple[Read, ...]:
    """The reads with `share` (0 to 1) of the context filled, on a straight line between the two."""
    share = min(max(share, 0.0), 1.0)
    return tuple(
        replace(a, n_bytes=round(a.n_bytes + share * (b.n_bytes - a.n_bytes)))
        for a, b in zip(empty, full, strict=True)
    )


def gpu_layer_s(backend: str) -> float:
    """Seconds that a GPU takes for one block beside reading its weights."""
    return _GPU_LAYER_S.get(backend, _GPU_LAYER_DEFAULT_S)


def _rows(shape: ModelShape, layer: int) -> tuple[int, int, int]:
    """Elements that attention reads of one token: (key, value, indexer key).

    A block with attention that has no cache of its own (Gemma 3n, Gemma 4) reads the one of an earlier block.
    """
    indexer = shape.indexer_k if shape.indexer_layers and shape.indexer_layers[layer] else 0
    own = shape.kv_row(layer)
    if own != (0, 0) or shape.encoder or shape.recurrent_layers[layer]:
        return (*own, indexer)
    heads, windowed = shape.n_head_kv[layer], shape.swa_layers[layer]
    key = heads * (shape.head_k_swa if windowed else shape.head_k)
    value = 0 if shape.mla else heads * (shape.head_v_swa if windowed else shape.head_v)
    return key, value, indexer
