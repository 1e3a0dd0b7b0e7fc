"""A small mixture of experts without data and without a vocabulary: enough for the engine's memory table."""

from __future__ import annotations

import math
from pathlib import Path

from tests.gguf.writer import F32, STRING, U32, entry, gguf, tensor

BLOCKS, EMBD, EXPERTS, FF = 6, 512, 32, 256
EXPERT_BYTES = 3 * EMBD * FF * EXPERTS // 32 * 34
"""Of the routed experts of one block, in q8_0."""
_F32, _Q8 = 0, 8
_VOCAB, _HEADS, _HEADS_KV, _HEAD = 8_192, 8, 2, 64
Row = tuple[str, tuple[int, ...], int]


def write_moe(path: Path) -> Path:
    """Write it as a sparse file and return its path."""
    rows, at = [], 0
    for name, shape, kind in _tensors():
        rows.append(tensor(name, shape, kind, at))
        size = math.prod(shape) * 4 if kind == _F32 else math.prod(shape) // 32 * 34
        at += size + -size % 32
    header = gguf(_metadata(), rows)
    with path.open("wb") as file:
        file.write(header)
        file.truncate(len(header) + at)
    return path


def _metadata() -> list[bytes]:
    numbers = {
        "block_count": BLOCKS, "context_length": 32_768, "embedding_length": EMBD,
        "feed_forward_length": 4 * EMBD, "attention.head_count": _HEADS, "attention.head_count_kv": _HEADS_KV,
        "attention.key_length": _HEAD, "attention.value_length": _HEAD, "expert_count": EXPERTS,
        "expert_used_count": 4, "expert_feed_forward_length": FF, "vocab_size": _VOCAB,
    }  # fmt: skip
    return [
        entry("general.architecture", STRING, "qwen3moe"),
        *(entry(f"qwen3moe.{key}", U32, value) for key, value in numbers.items()),
        entry("qwen3moe.attention.layer_norm_rms_epsilon", F32, 1e-6),
        entry("qwen3moe.rope.freq_base", F32, 1e6),
        entry("tokenizer.ggml.model", STRING, "no_vocab"),
    ]


def _tensors() -> list[Row]:
    rows: list[Row] = [
        ("token_embd.weight", (EMBD, _VOCAB), _Q8),
        ("output_norm.weight", (EMBD,), _F32),
        ("output.weight", (EMBD, _VOCAB), _Q8),
    ]
    for il in range(BLOCKS):
        rows += [(f"blk.{il}.{name}.weight", shape, kind) for name, shape, kind in _BLOCK]
    return rows


_BLOCK: tuple[Row, ...] = (
    ("attn_norm", (EMBD,), _F32),
    ("ffn_norm", (EMBD,), _F32),
    ("attn_q", (EMBD, _HEADS * _HEAD), _Q8),
    ("attn_k", (EMBD, _HEADS_KV * _HEAD), _Q8),
    ("attn_v", (EMBD, _HEADS_KV * _HEAD), _Q8),
    ("attn_output", (_HEADS * _HEAD, EMBD), _Q8),
    ("attn_q_norm", (_HEAD,), _F32),
    ("attn_k_norm", (_HEAD,), _F32),
    ("ffn_gate_inp", (EMBD, EXPERTS), _F32),
    ("ffn_gate_exps", (EMBD, FF, EXPERTS), _Q8),
    ("ffn_up_exps", (EMBD, FF, EXPERTS), _Q8),
    ("ffn_down_exps", (FF, EMBD, EXPERTS), _Q8),
)
