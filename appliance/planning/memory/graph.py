"""The graph of the worst batch as one device sees it: which tensors it makes, copies, and when they go.

Only what decides memory: sizes, uses, what may be overwritten, and the splits. A split begins where an
operation needs a weight that lies elsewhere, so that the copy of the last one is free by then; what a split
needs from elsewhere is copied at its start. Source: `ggml_backend_sched_split_graph` (ggml-backend.cpp) and
`ggml_gallocr_alloc_graph_impl` (ggml-alloc.c) of llama.cpp, October 2026.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from appliance.planning.memory.allocator import Step

Size = tuple[Literal["floats", "weight", "k", "v", "mask", "attention", "rotation", "other"], int | str]
"""How large a tensor is: floats per token; a weight's role; the cache of a block; the mask of a kind of cache
(1 = with a sliding window); bytes per token."""
Tensor = int


def floats(per_token: int) -> Size:
    """The size of a result."""
    return "floats", per_token


@dataclass(slots=True)
class _Node:
    output: Tensor | None
    sources: tuple[Tensor, ...]
    in_place: bool


@dataclass(slots=True)
class _Split:
    copies: list[Tensor] = field(default_factory=list)
    nodes: list[_Node] = field(default_factory=list)


class Graph:
    """Records operations in the engine's order, then says what the allocator has to do."""

    def __init__(self) -> None:
        self.sizes: list[Size] = []
        self._size_of: list[int] = []
        self._splits: list[_Split] = [_Split()]
        self._shared: dict[Size, Tensor] = {}

    def op(self, size: Size, *sources: Tensor, in_place: bool = False) -> Tensor:
        """The result of an operation.

        `in_place`: it takes the place of a source of its size that ends here; a view can't be overwritten.
        """
        output = self._tensor(size)
        self._splits[-1].nodes.append(_Node(output, sources, in_place))
        return output

    def use(self, *sources: Tensor) -> None:
        """An operation whose result has a place already: a write into the cache."""
        self._splits[-1].nodes.append(_Node(None, sources, in_place=False))

    def copy(self, size: Size, *, weight: bool = False, once: bool = False) -> Tensor:
        """A copy of something that lies elsewhere.

        `weight`: it begins a split. `once`: the same copy serves all later uses.
        """
        if once and size in self._shared:
            return self._shared[size]
        if weight and self._splits[-1].copies:
            self._splits.append(_Split())
        tensor = self._tensor(size)
        self._splits[-1].copies.append(tensor)
        if once:
            self._shared[size] = tensor
        return tensor

    def elsewhere(self, *sources: Tensor) -> None:
        """Operations on another device or in RAM take these as they are; what follows is a new split."""
        self._splits.append(_Split(nodes=[_Node(None, sources, in_place=False)]))
        self._splits.append(_Split())

    def steps(self) -> tuple[Step, ...]:
        """What the allocator does, in order."""
        uses = Counter(s for split in self._splits for node in split.nodes for s in node.sources)
        steps: list[Step] = []
        owner: dict[Tensor, Tensor] = {}
        for split in self._splits:
            for copied in split.copies:
                steps.append((True, copied, self._size_of[copied]))
                owner[copied] = copied
            for node in split.nodes:
                self._node(node, uses, owner, steps)
        return tuple(steps)

    def _node(
        self, node: _Node, uses: Counter[Tensor], owner: dict[Tensor, Tensor], steps: list[Step]
    ) -> None:
        taken = self._overwritten(node, uses)
        if node.output is not None and taken is not None:
            owner[node.output] = owner[taken]
        elif node.output is not None:
            owner[node.output] = node.output
            steps.append((True, node.output, self._size_of[node.output]))
        for source in node.sources:
            uses[source] -= 1
            if not uses[source] and source != taken:
                steps.append((False, owner[source], self._size_of[source]))
        if node.output is not None and not uses[node.output]:
            steps.append((False, owner[node.output], self._size_of[node.output]))

    def _overwritten(self, node: _Node, uses: Counter[Tensor]) -> Tensor | None:
        if not node.in_place or node.output is None:
            return None
        same: Sequence[Tensor] = [
            s for s in node.sources if self._size_of[s] == self._size_of[node.output] and uses[s] == 1
        ]
        return same[0] if same else None

    def _tensor(self, size: Size) -> Tensor:
        if size not in self.sizes:
            self.sizes.append(size)
        self._size_of.append(self.sizes.index(size))
        return len(self._size_of) - 1
