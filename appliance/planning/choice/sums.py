"""Bytes of blocks, added up once, so that a search looks at hundreds of candidates in milliseconds."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from appliance.gguf import ModelShape
from appliance.planning.memory.cache import Load, kv_layer_bytes, largest_kv_tensor, state_layer_bytes
from appliance.planning.memory.weights import Weights


class Sums:
    """Weights and caches of adjacent blocks of one model."""

    def __init__(self, shape: ModelShape, weights: Weights) -> None:
        self._shape, self._weights = shape, weights
        self._caches: dict[Load, tuple[int, ...]] = {}
        self._on: dict[tuple[int | None, bool], tuple[int, ...]] = {}
        self._largest: dict[Load, tuple[int, ...]] = {}
        self._sums: dict[object, tuple[int, ...]] = {}

    def caches(self, load: Load) -> tuple[int, ...]:
        """KV cache and recurrent state of each block."""
        if load not in self._caches:
            self._caches[load] = tuple(
                kv_layer_bytes(self._shape, load, il) + state_layer_bytes(self._shape, load, il)
                for il in range(self._shape.n_layer)
            )
        return self._caches[load]

    def blocks_on(self, limit: int | None, experts: bool = True) -> tuple[int, ...]:
        """Bytes of each block that a device takes whose largest tensor is `limit`."""
        key = limit, experts
        if key not in self._on:
            self._on[key] = tuple(
                self._weights.block_on(il, limit, experts) for il in range(self._shape.n_layer)
            )
        return self._on[key]

    def weights_of(self, limit: int | None, blocks: Sequence[int], cpu_moe: int) -> int:
        """Bytes of adjacent blocks on a device with that largest tensor."""
        if not blocks:
            return 0
        low, high = blocks[0], blocks[-1] + 1
        border = min(max(cpu_moe, low), high)
        without, every = self._added_up((limit, False)), self._added_up((limit, True))
        return without[border] - without[low] + every[high] - every[border]

    def largest_cache(self, load: Load, blocks: Sequence[int]) -> int:
        """Bytes of the largest cache tensor, keys or values of all slots, among these blocks."""
        if load not in self._largest:
            self._largest[load] = tuple(
                largest_kv_tensor(self._shape, load, il) for il in range(self._shape.n_layer)
            )
        return max((self._largest[load][il] for il in blocks), default=0)

    def caches_of(self, load: Load, blocks: Sequence[int]) -> int:
        """Bytes of adjacent blocks' caches."""
        if not blocks:
            return 0
        sums = self._added_up(load)
        return sums[blocks[-1] + 1] - sums[blocks[0]]

    def _added_up(self, what: Load | tuple[int | None, bool]) -> tuple[int, ...]:
        """Running sums over the blocks: of caches, or of weights by (largest tensor, with experts)."""
        if what not in self._sums:
            sizes = self.caches(what) if isinstance(what, Load) else self.blocks_on(*what)
            self._sums[what] = tuple(accumulate(sizes, initial=0))
        return self._sums[what]
