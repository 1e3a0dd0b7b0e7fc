"""A GGUF header that claims more weights than any machine here has memory, in a sparse file."""

from __future__ import annotations

import struct
from pathlib import Path

F16 = 1
UINT32, STRING, ARRAY = 4, 8, 9


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def number(key: str, value: int) -> bytes:
    return text(key) + struct.pack("<II", UINT32, value)


def write_header(file: Path, *, gib: int) -> None:
    """A llama-shaped model whose tensors take `gib` GiB in F16."""
    width = 8192
    rows = 1 << 20
    each = width * rows * 2
    layers = gib * 2**30 // each + 1
    pairs = [
        text("general.architecture") + struct.pack("<I", STRING) + text("llama"),
        number("llama.block_count", layers),
        number("llama.context_length", 8192),
        number("llama.embedding_length", width),
        number("llama.feed_forward_length", rows),
        number("llama.attention.head_count", 64),
        number("llama.attention.head_count_kv", 8),
        text("tokenizer.ggml.model") + struct.pack("<I", STRING) + text("no_vocab"),
        number("llama.vocab_size", 32000),
    ]
    tensors = [
        text(f"blk.{layer}.ffn_up.weight") + struct.pack("<IQQIQ", 2, width, rows, F16, layer * each)
        for layer in range(layers)
    ]
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs)) + b"".join(pairs) + b"".join(tensors)
    start = -(-len(head) // 32) * 32
    with file.open("wb") as out:
        out.write(head)
        out.truncate(start + layers * each)
