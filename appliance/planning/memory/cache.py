"""KV cache and recurrent state in bytes. Exact: `llama-kv-cache*.cpp` and `llama-memory-recurrent.cpp`."""

from __future__ import annotations

from dataclasses import dataclass

from appliance.gguf import ModelShape

PAD = 256
"""The engine rounds the context of a slot and the cells of a window up to this."""

_PER_32 = {
    "f32": 128, "f16": 64, "bf16": 64, "q8_0": 34, "q5_1": 24, "q5_0": 22, "q4_1": 20, "q4_0": 18,
    "iq4_nl": 18,
}  # fmt: skip
"""Bytes of 32 cached elements."""


@dataclass(frozen=True, slots=True)
class Load:
    """What the engine has to hold: the caches, and the worst batch."""

    ctx: int
    """Cells of one stream, padded: tokens per slot, or all tokens when the slots share one cache."""
    slots: int
    n_ubatch: int
    kv_k: str
    kv_v: str
    n_outputs: int
    """Tokens of one batch whose logits are kept: the slots when serving, the whole batch for embeddings."""
    flash_attn: bool = True
    unified: bool = False
    """One cache for all slots. Plans divide it instead: an overflow of a shared one ends every request."""
    swa_full: bool = False
    """Sliding-window blocks keep the full context (the default of the C API)."""

    @property
    def unit(self) -> int:
        """Bytes of one float for each token of a batch."""
        return 4 * self.n_ubatch

    @property
    def streams(self) -> int:
        """Separate caches."""
        return 1 if self.unified else self.slots


def pad(value: int, to: int = PAD) -> int:
    """`value` rounded up to a multiple of `to`."""
    return -(-value // to) * to


def known_kv_type(name: str) -> bool:
    """Whether the engine has this cache type."""
    return name in _PER_32


def bytes_per_32(kv_type: str) -> int:
    """Bytes of 32 cached elements: how much a type keeps of them. 0 for one that the engine lacks."""
    return _PER_32.get(kv_type, 0)


def quantised(kv_type: str) -> bool:
    """Whether the type stores blocks of 32 elements, which needs flash attention."""
    return kv_type not in ("f32", "f16", "bf16")


def row_bytes(elements: int, kv_type: str) -> int:
    """Bytes of one cached row."""
    return elements * _PER_32[kv_type] // 32


def window_cells(shape: ModelShape, load: Load) -> int:
    """Cells of a sliding-window cache in one stream."""
    if load.swa_full:
        return load.ctx
    windows = load.slots if load.unified else 1
    return pad(min(load.ctx, shape.n_swa * windows + load.n_ubatch))


def kv_layer_bytes(shape: ModelShape, load: Load, layer: int) -> int:
    """Bytes of one block's cache, indexer keys included."""
    key, value = shape.kv_row(layer)
    cells = window_cells(shape, load) if shape.swa_layers[layer] else load.ctx
    total = cells * (row_bytes(key, load.kv_k) + row_bytes(value, load.kv_v))
    if shape.indexer_layers and shape.indexer_layers[layer]:
        total += load.ctx * row_bytes(shape.indexer_k, load.kv_k)
    return load.streams * total


def largest_kv_tensor(shape: ModelShape, load: Load, layer: int) -> int:
    """Bytes of the larger of one block's key and value tensors, which hold all streams."""
    key, value = shape.kv_row(layer)
    cells = window_cells(shape, load) if shape.swa_layers[layer] else load.ctx
    return load.streams * cells * max(row_bytes(key, load.kv_k), row_bytes(value, load.kv_v))


def f16_copy_bytes(shape: ModelShape, load: Load, layer: int) -> int:
    """Bytes of one block's cache if it were f16: CUDA's attention makes such a copy of a quantised one."""
    key, value = shape.kv_row(layer)
    cells = window_cells(shape, load) if shape.swa_layers[layer] else load.ctx
    return load.streams * cells * 2 * (key + value)


def kv_bytes(shape: ModelShape, load: Load) -> int:
    """Bytes of the whole KV cache."""
    return sum(kv_layer_bytes(shape, load, il) for il in range(shape.n_layer))


def state_layer_bytes(shape: ModelShape, load: Load, layer: int) -> int:
    """Bytes of one block's recurrent state: 4-byte floats, one state per slot, whatever the context."""
    return load.slots * 4 * shape.state_floats if shape.recurrent_layers[layer] else 0


def state_bytes(shape: ModelShape, load: Load) -> int:
    """Bytes of the recurrent state of the whole model."""
    return sum(state_layer_bytes(shape, load, il) for il in range(shape.n_layer))
