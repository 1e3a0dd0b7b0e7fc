"""Bytes of the weights by place: input, each block, output head. Exact, from the tensor table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from appliance.gguf import Header, ModelShape

_BLOCK = re.compile(r"blk\.(\d+)\.")
_INPUT = frozenset({"token_embd", "position_embd", "token_types", "per_layer_token_embd"})
"""Always on the CPU: `LLM_TENSOR_LAYER_INPUT` in llama-arch.cpp."""
_EVERYWHERE = frozenset({"rope_freqs", "rope_factors_long", "rope_factors_short"})
"""Small, and copied once into each buffer that has blocks."""
_EXPERTS = re.compile(r"\.ffn_(?:up|down|gate|gate_up)_(?:ch)?exps\.")
"""Routed experts: what `--cpu-moe` keeps in RAM (`LLM_FFN_EXPS_REGEX` in common.h)."""
_FIRST_BLOCK = frozenset({"token_embd_norm", "per_layer_model_proj", "per_layer_proj_norm"})
"""They count as part of the first block (`LLM_TENSOR_LAYER_REPEATING` without a number)."""


_ASKED_TOKENS = 512
"""Tokens of the operation with which the loader asks a device about a matrix (`weight_buft_supported`)."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Tensor sizes in bytes, grouped by where the engine puts them."""

    input: int
    blocks: tuple[tuple[int, ...], ...]
    output: tuple[int, ...]
    output_copy: int
    """Size of the copy of the input embedding that serves as output matrix (tied models); 0 = none."""
    everywhere: int
    experts: tuple[tuple[int, ...], ...] = ()
    """The routed expert tensors of each block; `blocks` has them, too."""
    largest: Mapping[str, int] = field(default_factory=dict, compare=False)
    """The largest tensor of each role over all blocks, by its name without block and `.weight`: `ffn_up`."""

    logits: int = 0
    """The result of the output matrix for the tokens that the loader asks a device with."""

    @property
    def total(self) -> int:
        """All weights of the file, each counted once."""
        return self.input + sum(map(sum, self.blocks)) + sum(self.output) + self.everywhere

    def block_on(self, layer: int, limit: int | None, experts: bool = True) -> int:
        """Bytes of a block that a device takes whose largest tensor is `limit`.

        Without `experts`, the routed ones stay in RAM.
        """
        there = _within(self.blocks[layer], limit)
        return there if experts or not self.experts else there - _within(self.experts[layer], limit)

    def head_refused(self, limit: int | None) -> bool:
        """Whether a device with that largest tensor leaves the output matrix in RAM: for its own size, or for
        that of its result, with which the loader asks (`ggml_backend_vk_device_supports_op`).
        """
        return limit is not None and max(*self.output, self.output_copy, self.logits, 0) > limit

    def output_on(self, limit: int | None) -> int:
        """Bytes of the output head on a device; a tied model has a second copy of its embedding there."""
        sizes = (*self.output, self.output_copy)
        return sum(sizes) - (max(sizes) if self.head_refused(limit) else 0)

    def output_off(self, limit: int | None) -> int:
        """Bytes of the output head that a device refuses and that stay in RAM (not the tied copy)."""
        return max(self.output, default=0) if self.head_refused(limit) and not self.output_copy else 0


def weights_of(header: Header, shape: ModelShape) -> Weights:
    """Group the tensor table."""
    blocks: list[list[int]] = [[] for _ in range(shape.n_layer)]
    experts: list[list[int]] = [[] for _ in range(shape.n_layer)]
    output: list[int] = []
    largest: dict[str, int] = {}
    total_input = everywhere = embedding = 0
    has_output = False
    for tensor in header.tensors:
        base = tensor.name.split(".", 1)[0]
        match = _BLOCK.match(tensor.name)
        if match and int(match[1]) < shape.n_layer:
            blocks[int(match[1])].append(tensor.n_bytes)
            role = tensor.name[match.end() :].removesuffix(".weight")
            largest[role] = max(largest.get(role, 0), tensor.n_bytes)
            if _EXPERTS.search(tensor.name):
                experts[int(match[1])].append(tensor.n_bytes)
        elif base in _INPUT:
            total_input += tensor.n_bytes
            embedding += tensor.n_bytes if tensor.name == "token_embd.weight" else 0
        elif base in _EVERYWHERE:
            everywhere += tensor.n_bytes
        elif base in _FIRST_BLOCK:
            blocks[0].append(tensor.n_bytes)
        else:
            has_output = has_output or tensor.name == "output.weight"
            output.append(tensor.n_bytes)
    copy = 0 if has_output or shape.encoder else embedding
    return Weights(
        total_input,
        tuple(map(tuple, blocks)),
        tuple(output),
        copy,
        everywhere,
        tuple(map(tuple, experts)),
        largest,
        _ASKED_TOKENS * 4 * shape.n_vocab if has_output or copy else 0,
    )


def _within(sizes: tuple[int, ...], limit: int | None) -> int:
    return sum(size for size in sizes if limit is None or size <= limit)
