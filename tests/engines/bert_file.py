"""A small encoder for tests: BERT with random weights, as an embedder or with a head that scores. Two MiB."""

from __future__ import annotations

import math
import random
import struct
from pathlib import Path

from tests.gguf.writer import BOOL, F32, I32, STRING, U32, array, entry, gguf, tensor

EMBD, FF, LAYERS, CONTEXT = 64, 128, 2, 512
_F32 = 0
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
WORDS = ("the", "a", "cat", "dog", "sits", "runs", "on", "mat", "where", "who", "is", "sky", "blue", "hi")
MEAN, CLS, RANK = 1, 2, 4
"""`enum llama_pooling_type` in include/llama.h."""

Row = tuple[str, tuple[int, ...]]


def write_bert(path: Path, pooling: int | None) -> Path:
    """Write the model; `pooling` None: its header says nothing of it. RANK has a head for one score."""
    tokens = [*_SPECIAL, *(f"▁{word}" for word in WORDS), *"abcdefghijklmnopqrstuvwxyz"]
    rows, at, chance = [], 0, random.Random(7)
    data = bytearray()
    for name, shape in _tensors(len(tokens), ranks=pooling == RANK):
        rows.append(tensor(name, shape, _F32, at))
        count = math.prod(shape)
        is_norm = "norm" in name and name.endswith("weight")
        values = [1.0] * count if is_norm else [chance.gauss(0, 0.2) for _ in range(count)]
        raw = struct.pack(f"<{count}f", *values)
        data += raw + b"\0" * (-len(raw) % 32)
        at = len(data)
    path.write_bytes(gguf(_metadata(tokens, pooling), rows) + data)
    return path


def _metadata(tokens: list[str], pooling: int | None) -> list[bytes]:
    numbers = {
        "context_length": CONTEXT, "embedding_length": EMBD, "feed_forward_length": FF,
        "block_count": LAYERS, "attention.head_count": 2,
    }  # fmt: skip
    if pooling is not None:
        numbers["pooling_type"] = pooling
    return [
        entry("general.architecture", STRING, "bert"),
        entry("general.name", STRING, "tiny bert"),
        *(entry(f"bert.{key}", U32, value) for key, value in numbers.items()),
        entry("bert.attention.layer_norm_epsilon", F32, 1e-12),
        entry("bert.attention.causal", BOOL, False),
        entry("tokenizer.ggml.model", STRING, "bert"),
        entry("tokenizer.ggml.token_type_count", U32, 2),
        array("tokenizer.ggml.tokens", STRING, tokens),
        array("tokenizer.ggml.token_type", I32, [3 if token in _SPECIAL else 1 for token in tokens]),
        *(
            entry(f"tokenizer.ggml.{key}_token_id", U32, value)
            for key, value in (
                ("padding", 0), ("unknown", 1), ("bos", 2), ("cls", 2), ("eos", 3), ("seperator", 3)
            )
        ),
    ]  # fmt: skip


def _tensors(n_tokens: int, *, ranks: bool) -> list[Row]:
    rows: list[Row] = [
        ("token_embd.weight", (EMBD, n_tokens)),
        ("token_types.weight", (EMBD, 2)),
        ("position_embd.weight", (EMBD, CONTEXT)),
        *_with_bias("token_embd_norm", (EMBD,)),
    ]
    for il in range(LAYERS):
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            rows += _with_bias(f"blk.{il}.{part}", (EMBD, EMBD))
        rows += _with_bias(f"blk.{il}.attn_output_norm", (EMBD,))
        rows += _with_bias(f"blk.{il}.ffn_up", (EMBD, FF))
        rows += _with_bias(f"blk.{il}.ffn_down", (FF, EMBD))
        rows += _with_bias(f"blk.{il}.layer_output_norm", (EMBD,))
    if ranks:
        rows += [*_with_bias("cls", (EMBD, EMBD)), *_with_bias("cls.output", (EMBD, 1))]
    return rows


def _with_bias(name: str, shape: tuple[int, ...]) -> list[Row]:
    return [(f"{name}.weight", shape), (f"{name}.bias", (shape[-1],))]
