"""LoRA adapters for tests: random A and B for a few matrices of SmolLM2, or of whatever shapes are given."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Mapping
from pathlib import Path

from tests.gguf.writer import F32, STRING, entry, gguf, tensor

RANK = 4
_F32 = 0
SMOLLM2: Mapping[str, tuple[int, int]] = {
    **{f"blk.{il}.ffn_down": (1_536, 576) for il in range(0, 30, 3)},
    **{f"blk.{il}.attn_output": (576, 576) for il in range(0, 30, 3)},
}
"""(Row length, rows) of the matrices that are changed."""


def write_lora(
    path: Path,
    matrices: Mapping[str, tuple[int, int]] = SMOLLM2,
    *,
    arch: str = "llama",
    general: str = "adapter",
    kind: str = "lora",
    seed: int = 5,
) -> Path:
    """Write the file and return its path."""
    rows, data, chance = [], bytearray(), random.Random(seed)
    for name, (width, height) in matrices.items():
        for suffix, shape in (("lora_a", (width, RANK)), ("lora_b", (RANK, height))):
            rows.append(tensor(f"{name}.weight.{suffix}", shape, _F32, len(data)))
            count = math.prod(shape)
            raw = struct.pack(f"<{count}f", *(chance.gauss(0, 0.1) for _ in range(count)))
            data += raw + b"\0" * (-len(raw) % 32)
    head = [
        entry("general.type", STRING, general),
        entry("general.architecture", STRING, arch),
        entry("general.name", STRING, "a test adapter"),
        entry("adapter.type", STRING, kind),
        entry("adapter.lora.alpha", F32, float(RANK)),
    ]
    path.write_bytes(gguf(head, rows) + data)
    return path
