"""Small projectors (`mmproj` files) for tests: valid for llama.cpp, of any shape, a few KiB on disk.

Weights are zeros in a sparse file unless a filler is given: memory depends on shapes alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.gguf.writer import BOOL, F32, STRING, U32, array, entry, gguf, tensor

_F32, _F16 = 0, 1
_BYTES = {_F32: 4, _F16: 2}


@dataclass(frozen=True)
class Vision:
    """The shape of a vision encoder; `kind` is llama.cpp's name of the projector."""

    kind: str
    image: int
    patch: int
    embd: int
    ff: int
    heads: int
    layers: int
    out: int
    """Width of the language model."""
    extra: Mapping[str, int] | None = None
    """More metadata, such as `projector.scale_factor`."""
    deep: tuple[int, ...] = ()
    """Blocks whose features are kept for the language model (Qwen3-VL)."""


def write_clip(path: Path, vision: Vision) -> Path:
    """Write the file and return its path."""
    rows, at = [], 0
    for name, shape, kind in _tensors(vision):
        rows.append(tensor(name, shape, kind, at))
        size = math.prod(shape) * _BYTES[kind]
        at += size + -size % 32
    header = gguf(_metadata(vision), rows)
    with path.open("wb") as file:
        file.write(header)
        file.truncate(len(header) + at)
    return path


def _metadata(v: Vision) -> list[bytes]:
    numbers = {
        "image_size": v.image,
        "patch_size": v.patch,
        "embedding_length": v.embd,
        "feed_forward_length": v.ff,
        "block_count": v.layers,
        "projection_dim": v.out,
        "attention.head_count": v.heads,
        **(v.extra or {}),
    }
    return [
        entry("general.architecture", STRING, "clip"),
        entry("clip.projector_type", STRING, v.kind),
        entry("clip.has_vision_encoder", BOOL, True),
        entry("clip.use_gelu", BOOL, True),
        *(entry(f"clip.vision.{key}", U32, value) for key, value in numbers.items()),
        entry("clip.vision.attention.layer_norm_epsilon", F32, 1e-6),
        array("clip.vision.image_mean", F32, [0.5, 0.5, 0.5]),
        array("clip.vision.image_std", F32, [0.5, 0.5, 0.5]),
    ]


Row = tuple[str, tuple[int, ...], int]


def _tensors(v: Vision) -> list[Row]:
    rows: list[Row] = [("v.patch_embd.weight", (v.patch, v.patch, 3, v.embd), _F16)]
    if v.kind.startswith("qwen"):
        rows.append(("v.patch_embd.weight.1", (v.patch, v.patch, 3, v.embd), _F16))
    if v.kind not in ("pixtral", "gemma4v"):
        rows += _linear("v.post_ln", v.embd, None)
    if v.kind == "gemma4v":
        rows.append(("v.position_embd.weight", (v.embd, 256, 2), _F32))
    elif v.kind not in ("qwen2vl_merger", "qwen2.5vl_merger", "pixtral"):
        positions = (v.image // v.patch) ** 2 + (v.kind in ("mlp", "internvl"))
        rows += [
            ("v.patch_embd.bias", (v.embd,), _F32),
            ("v.position_embd.weight", (v.embd, positions), _F32),
        ]
    for il in range(v.layers):
        rows += _block(v, f"v.blk.{il}")
    return rows + _projection(v)


def _block(v: Vision, name: str) -> list[Row]:
    rows = [*_linear(f"{name}.ln1", v.embd, None), *_linear(f"{name}.ln2", v.embd, None)]
    if v.kind == "qwen3vl_merger":
        rows += _linear(f"{name}.attn_qkv", v.embd, 3 * v.embd)
    else:
        for part in "qkv":
            rows += _linear(f"{name}.attn_{part}", v.embd, v.embd)
    rows += _linear(f"{name}.attn_out", v.embd, v.embd)
    rows += [*_linear(f"{name}.ffn_up", v.embd, v.ff), *_linear(f"{name}.ffn_down", v.ff, v.embd)]
    if v.kind in ("pixtral", "qwen2.5vl_merger", "gemma4v"):
        rows += _linear(f"{name}.ffn_gate", v.embd, v.ff)
    if v.kind == "gemma4v":
        norms = (
            ("attn_q_norm", v.embd // v.heads),
            ("attn_k_norm", v.embd // v.heads),
            ("attn_post_norm", v.embd),
        )
        rows += [
            (f"{name}.{norm}.weight", (width,), _F32) for norm, width in (*norms, ("ffn_post_norm", v.embd))
        ]
    return rows


def _projection(v: Vision) -> list[Row]:
    if v.kind.startswith("qwen"):
        rows = [*_linear("mm.0", 4 * v.embd, 4 * v.embd), *_linear("mm.2", 4 * v.embd, v.out)]
        for il in v.deep:
            name = f"v.deepstack.{il}"
            rows += [
                *_linear(f"{name}.norm", 4 * v.embd, None),
                *_linear(f"{name}.fc1", 4 * v.embd, 4 * v.embd),
            ]
            rows += _linear(f"{name}.fc2", 4 * v.embd, v.out)
        return rows
    if v.kind == "gemma4v":
        return [("mm.input_projection.weight", (v.embd, v.out), _F16)]
    if v.kind == "gemma3":
        return [
            ("mm.input_projection.weight", (v.out, v.embd), _F16),
            ("mm.soft_emb_norm.weight", (v.embd,), _F32),
        ]
    if v.kind == "idefics3":
        scale = (v.extra or {}).get("projector.scale_factor", 1)
        return _linear("mm.model.fc", v.embd * scale * scale, v.out)[:1]
    if v.kind == "pixtral":
        line_break = ("v.token_embd.img_break", (v.out,), _F32)
        return [line_break, *_linear("mm.1", v.embd, v.out), *_linear("mm.2", v.out, v.out)]
    if v.kind == "internvl":
        return [
            ("v.class_embd", (v.embd,), _F32),
            *_linear("mm.model.mlp.0", 4 * v.embd, None),
            *_linear("mm.model.mlp.1", 4 * v.embd, v.out),
            *_linear("mm.model.mlp.3", v.out, v.out),
        ]
    if v.kind == "mlp":
        return [
            ("v.class_embd", (v.embd,), _F32),
            *_linear("v.pre_ln", v.embd, None),
            *_linear("mm.0", v.embd, v.out),
            *_linear("mm.2", v.out, v.out),
        ]
    raise ValueError(v.kind)


def _linear(name: str, width: int, to: int | None) -> list[Row]:
    """A matrix with its bias; a norm when `to` is None."""
    if to is None:
        return [(f"{name}.weight", (width,), _F32), (f"{name}.bias", (width,), _F32)]
    return [(f"{name}.weight", (width, to), _F16), (f"{name}.bias", (to,), _F32)]
