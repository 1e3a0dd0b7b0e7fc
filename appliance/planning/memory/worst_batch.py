"""What the worst batch takes on a device, from its recorded graph."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, islice
from typing import NamedTuple

from appliance.gguf import ModelShape
from appliance.planning.memory.allocator import Step, aligned, peak
from appliance.planning.memory.blocks import Block, Builder, Where
from appliance.planning.memory.cache import Load, f16_copy_bytes, row_bytes, window_cells
from appliance.planning.memory.forms import live_floats, rotation, score_bytes
from appliance.planning.memory.graph import Graph, Size
from appliance.planning.memory.placement import Placement
from appliance.planning.memory.weights import Weights

_IN_RAM = 3, 8  # blocks of one kind in a row after which nothing new comes, and of all kinds
_ON_DEVICE = 2, 5


_Recorded = tuple[tuple[Size, ...], tuple[Step, ...]]


class _Kind(NamedTuple):
    """What a recorded graph depends on, sizes aside."""

    blocks: tuple[Block, ...]
    rotated: tuple[bool, bool]
    reordered: bool
    cpu: bool


class WorstBatch:
    """Records the graph of a model's blocks and repeats its allocation."""

    def __init__(self, shape: ModelShape, weights: Weights) -> None:
        self.shape, self.weights = shape, weights
        self._recorded: dict[_Kind, _Recorded] = {}
        self._kinds: dict[tuple[bool, bool, int, int], int] = {}
        self._layers = tuple(self._kind(il) for il in range(shape.n_layer))
        experts = weights.experts or ((),) * len(weights.blocks)
        self._dense = tuple(sum(b) - sum(x) for b, x in zip(weights.blocks, experts, strict=True))
        self.exact = not (any(shape.recurrent_layers) or shape.mla or shape.encoder or shape.n_embd_per_layer)
        """Every operation of this model is recorded; else attention is a part with a size alone."""

    def blocks(self, placement: Placement | None, mine: Sequence[int]) -> tuple[Block, ...]:
        """The blocks that decide, alike ones left out. With a placement: also those that lie in RAM."""
        if placement is None:
            return _shortened([self._block(il, "device") for il in mine], *_IN_RAM)
        trunk = range(self.shape.n_layer - self.shape.n_layer_nextn)
        far = [self._block(il, "host") for il in placement.on_host if il in trunk]
        near: list[Block] = []
        for il in trunk:
            if placement.blocks[il] is not None and il < placement.cpu_moe:
                near.append(self._block(il, "experts"))
        near += [self._block(il, "device") for il in mine if il in trunk and il >= placement.cpu_moe]
        return _shortened(far, *_IN_RAM) + _shortened(near, *(_ON_DEVICE if far else _IN_RAM))

    def peak(
        self,
        load: Load,
        blocks: tuple[Block, ...],
        mask: int,
        *,
        f16_copies: bool = False,
        reordered: bool = False,
        cpu: bool = False,
    ) -> int:
        """Bytes of the buffer.

        `mask`: bytes of one of its cells for one token. `f16_copies`: attention copies its cache.
        `reordered`: see `Builder`. `cpu`: the inputs are there, too.
        """
        rotated = bool(rotation(self.shape, load, 0)), bool(rotation(self.shape, load, 1))
        key = _Kind(blocks, rotated, reordered, cpu)
        if key not in self._recorded:
            self._recorded[key] = self._record(key)
        sizes, steps = self._recorded[key]
        return peak(steps, [aligned(self._bytes(size, load, mask, f16_copies)) for size in sizes])

    def bound(self, load: Load, masks: int, placement: Placement) -> int:
        """Bytes that a part in RAM takes at most, where the graph is not known in all its operations.

        Beside what is live anyway: the weights of one block; of its experts those that follow each other and
        differ in size; or its cache, and its values once more, which don't fit into the last ones' hole.
        """
        live = masks + load.unit * live_floats(self.shape) + score_bytes(self.shape, load)
        routed = sum({n for role, n in self.weights.largest.items() if "_exps" in role})
        dense = cache = 0
        for il in placement.on_host:
            dense = max(dense, self._dense[il])
            key, value = self.shape.kv_row(il)
            cells = window_cells(self.shape, load) if self.shape.swa_layers[il] else load.ctx
            row = row_bytes(key, load.kv_k) + 2 * row_bytes(value or key, load.kv_v)
            cache = max(cache, load.streams * cells * row)
        beside = 4 * load.unit * self.shape.n_embd + self.weights.largest.get("attn_output", 0)
        return max(live + max(dense, routed), masks + cache + beside)

    def _record(self, kind: _Kind) -> _Recorded:
        graph = Graph()
        builder = Builder(
            self.shape,
            self.weights.largest.keys(),
            graph,
            exact=self.exact,
            rotated=kind.rotated,
            reordered=kind.reordered,
        )
        swa = self.shape.swa_layers
        state = builder.looked_up(swa[b.layer] for b in kind.blocks) if kind.cpu else builder.copied()
        for block in kind.blocks:
            state = builder.block(block, state)
        return tuple(graph.sizes), graph.steps()

    def _bytes(self, size: Size, load: Load, mask: int, f16_copies: bool) -> int:
        what, which = size
        if what == "weight":
            return self.weights.largest.get(str(which), 0)
        number = int(which)
        if what == "floats":
            return load.unit * number
        if what == "other":
            return load.n_ubatch * number
        if what == "mask":
            cells = window_cells(self.shape, load) if number else load.ctx
            return mask * cells * load.n_ubatch
        if what == "attention":
            return self._attention(load, number, f16_copies)
        if what == "rotation":
            return rotation(self.shape, load, number)
        key, value = self.shape.kv_row(number)
        cells = window_cells(self.shape, load) if self.shape.swa_layers[number] else load.ctx
        row = row_bytes(key, load.kv_k) if what == "k" else row_bytes(value or key, load.kv_v)
        return load.streams * cells * row

    def _attention(self, load: Load, layer: int, f16_copies: bool) -> int:
        shape = self.shape
        head = shape.head_v_swa if shape.swa_layers[layer] else shape.head_v
        copies = f16_copy_bytes(shape, load, layer) if f16_copies else 0
        return load.unit * shape.n_head[layer] * head + copies

    def _kind(self, layer: int) -> int:
        """The first block that is like this one."""
        shape = self.shape
        routed = bool(self.weights.experts[layer]) if self.weights.experts else bool(shape.n_expert)
        key = (shape.swa_layers[layer], shape.recurrent_layers[layer], shape.n_ff[layer], int(routed))
        return self._kinds.setdefault(key, layer)

    def _block(self, layer: int, where: Where) -> Block:
        first = self._layers[layer]
        return Block(first, where, bool(self.weights.experts and self.weights.experts[first]))


def _shortened(blocks: Sequence[Block], alike: int, longest: int) -> tuple[Block, ...]:
    kept = [block for _, group in groupby(blocks) for block in islice(group, alike)]
    return tuple(kept[:longest])
