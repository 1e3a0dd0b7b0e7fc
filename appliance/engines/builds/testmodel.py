"""A tiny real model, written here: a Llama of two layers with random weights and a vocabulary of bytes.

It says letters without sense; that a build loads it and yields one proves that its code runs on this machine.
Never half a character: servers refuse output that is no text, so single bytes must not be sampled. For that
every embedding has one large number at the same place, which the output matrix turns against all but letters.
Heads of 64 and rows of 128 are sizes for which GPU kernels exist. Layout: GGUF version 3 (ggml's gguf.md).
"""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from appliance.errors import EngineError

MODEL_ID = "test-model"
N_LAYER = 2
CONTEXT = 256
_EMBD, _FF, _HEADS, _HEADS_KV, _HEAD = 128, 128, 2, 1, 64
_U32, _I32, _F32, _STRING, _ARRAY = 4, 5, 6, 8, 9
_TYPE_F32, _TYPE_F16 = 0, 1
_ALIGN = 32
_NORMAL, _UNKNOWN, _CONTROL, _BYTE = 1, 2, 3, 6
"""llama.h, enum llama_token_type."""
_SPREAD = 0.08
_LOUD, _AGAINST = 8.0, -4.0
"""At place 0 of each embedding, and of the output's rows that are no letters: about 40 off their logits."""
_SEED = 20_260_814
"""The same model each time, so that a build that failed fails again."""


@dataclass(frozen=True, slots=True)
class _Tensor:
    name: str
    shape: tuple[int, ...]
    data: bytes
    kind: int


def write(path: Path) -> Path:
    """Write the model (about half a MiB) and return its path. Raises EngineError."""
    tensors = _tensors(random.Random(_SEED))  # noqa: S311 - noise, no secret
    rows, offset = [], 0
    for one in tensors:
        sides = struct.pack(f"<{len(one.shape)}Q", *one.shape)
        rows.append(_text(one.name) + struct.pack("<I", len(one.shape)) + sides)
        rows.append(struct.pack("<IQ", one.kind, offset))
        offset += _padded(len(one.data))
    entries = _entries()
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(entries)) + b"".join(entries) + b"".join(rows)
    try:
        with path.open("wb") as file:
            for piece in (head, *(one.data for one in tensors)):
                file.write(piece.ljust(_padded(len(piece)), b"\0"))
    except OSError as error:
        raise EngineError(
            "The test model can't be written.",
            cause=f"{path}: {error.strerror}",
            hint="Free some space there, then try again.",
        ) from None
    return path


def _padded(count: int) -> int:
    return count + -count % _ALIGN


def _text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def _entry(key: str, kind: int, value: bytes) -> bytes:
    return _text(key) + struct.pack("<I", kind) + value


def _array(key: str, kind: int, values: Sequence[object], pack: Callable[[object], bytes]) -> bytes:
    body = struct.pack("<IQ", kind, len(values)) + b"".join(map(pack, values))
    return _entry(key, _ARRAY, body)


def _vocabulary() -> list[tuple[str, float, int]]:
    """Piece, score and type: three special ones, all bytes, and the letters with a space before them."""
    special = [("<unk>", 0.0, _UNKNOWN), ("<s>", 0.0, _CONTROL), ("</s>", 0.0, _CONTROL)]
    raw = [(f"<0x{byte:02X}>", 0.0, _BYTE) for byte in range(256)]
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    words = ["▁", *letters, *(letter.upper() for letter in letters)]
    pieces = [(word, -float(place), _NORMAL) for place, word in enumerate(words)]
    return special + raw + pieces


def _entries() -> list[bytes]:
    vocabulary = _vocabulary()
    numbers = {
        "block_count": N_LAYER, "context_length": CONTEXT, "embedding_length": _EMBD,
        "feed_forward_length": _FF, "attention.head_count": _HEADS, "attention.head_count_kv": _HEADS_KV,
        "rope.dimension_count": _HEAD, "vocab_size": len(vocabulary),
    }  # fmt: skip
    pieces, scores, types = zip(*vocabulary, strict=True)
    return [
        _entry("general.architecture", _STRING, _text("llama")),
        _entry("general.name", _STRING, _text("appliance test model")),
        *(_entry(f"llama.{key}", _U32, struct.pack("<I", value)) for key, value in numbers.items()),
        _entry("llama.attention.layer_norm_rms_epsilon", _F32, struct.pack("<f", 1e-5)),
        _entry("tokenizer.ggml.model", _STRING, _text("llama")),
        _array("tokenizer.ggml.tokens", _STRING, pieces, lambda piece: _text(str(piece))),
        _array("tokenizer.ggml.scores", _F32, scores, lambda score: struct.pack("<f", score)),
        _array("tokenizer.ggml.token_type", _I32, types, lambda kind: struct.pack("<i", kind)),
        *(
            _entry(f"tokenizer.ggml.{name}_token_id", _U32, struct.pack("<I", place))
            for place, name in enumerate(("unknown", "bos", "eos"))
        ),
    ]


def _tensors(noise: random.Random) -> list[_Tensor]:
    def matrix(name: str, *shape: int, first: Sequence[float] = ()) -> _Tensor:
        values = [noise.uniform(-_SPREAD, _SPREAD) for _ in range(math.prod(shape))]
        for row, value in enumerate(first):
            values[row * shape[0]] = value
        return _Tensor(f"{name}.weight", shape, struct.pack(f"<{len(values)}e", *values), _TYPE_F16)

    def ones(name: str) -> _Tensor:
        return _Tensor(f"{name}.weight", (_EMBD,), struct.pack(f"<{_EMBD}f", *(1.0,) * _EMBD), _TYPE_F32)

    kinds, across = [kind for _, _, kind in _vocabulary()], _HEADS * _HEAD
    found = [
        matrix("token_embd", _EMBD, len(kinds), first=[_LOUD] * len(kinds)),
        ones("output_norm"),
        matrix("output", _EMBD, len(kinds), first=[0.0 if kind == _NORMAL else _AGAINST for kind in kinds]),
    ]
    for il in range(N_LAYER):
        block = f"blk.{il}"
        found += [
            ones(f"{block}.attn_norm"),
            matrix(f"{block}.attn_q", _EMBD, across),
            matrix(f"{block}.attn_k", _EMBD, _HEADS_KV * _HEAD),
            matrix(f"{block}.attn_v", _EMBD, _HEADS_KV * _HEAD),
            matrix(f"{block}.attn_output", across, _EMBD),
            ones(f"{block}.ffn_norm"),
            matrix(f"{block}.ffn_gate", _EMBD, _FF),
            matrix(f"{block}.ffn_up", _EMBD, _FF),
            matrix(f"{block}.ffn_down", _FF, _EMBD),
        ]
    return found
