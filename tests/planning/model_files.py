"""GGUF files that are headers only, in the shapes of well-known models: a plan looks at nothing else.

Shapes are those of the models' own configuration files. `Q4_K_M` mixes types as llama.cpp's quantiser does
(`llama_tensor_get_type`): Q6_K for the output and for half of the value and down matrices, else Q4_K. The
tensor data is a hole in a sparse file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from appliance.gguf import TENSOR_TYPES
from tests.gguf.writer import BOOL, I32, STRING, U32, array, entry, gguf, tensor

_F32, _Q8_0, _Q4_K, _Q6_K, _MXFP4 = 0, 8, 12, 14, 39
Row = tuple[str, tuple[int, ...], int]


@dataclass(frozen=True)
class Shape:
    """A model in numbers. `experts` (count, used, width) makes a mixture of experts."""

    arch: str
    layers: int
    embd: int
    ff: int
    heads: int
    heads_kv: int
    head: int
    vocab: int
    context: int
    tied: bool = False
    experts: tuple[int, int, int] | None = None
    expert_type: int = _Q4_K
    hybrid: bool = False
    """Qwen3.5: three recurrent blocks, then one with attention."""
    further: Mapping[str, int | list[bool]] = field(default_factory=dict)

    def write(self, path: Path) -> Path:
        """Write the header and return the path."""
        rows, at = [], 0
        for name, sides, kind in self._tensors():
            rows.append(tensor(name, sides, kind, at))
            one = TENSOR_TYPES[kind]
            size = math.prod(sides) // one.block_size * one.block_bytes
            at += size + -size % 32
        header = gguf(self._metadata(), rows)
        with path.open("wb") as file:
            file.write(header)
            file.truncate(len(header) + at)
        return path

    def _metadata(self) -> Iterator[bytes]:
        numbers: dict[str, int | list[bool]] = {
            "block_count": self.layers,
            "context_length": self.context,
            "embedding_length": self.embd,
            "feed_forward_length": self.ff,
            "attention.head_count": self.heads,
            "attention.head_count_kv": self.heads_kv,
            "attention.key_length": self.head,
            "attention.value_length": self.head,
            "vocab_size": self.vocab,
            **self.further,
        }
        if self.experts:
            count, used, width = self.experts
            numbers |= {
                "expert_count": count,
                "expert_used_count": used,
                "expert_feed_forward_length": width,
            }
        yield entry("general.architecture", STRING, self.arch)
        for key, value in numbers.items():
            if isinstance(value, list):
                yield array(f"{self.arch}.{key}", BOOL if isinstance(value[0], bool) else I32, value)
            else:
                yield entry(f"{self.arch}.{key}", U32, value)

    def _tensors(self) -> Iterator[Row]:
        published = self.expert_type == _MXFP4
        first, last = (_Q8_0, _Q8_0) if published else (_Q6_K if self.tied else _Q4_K, _Q6_K)
        yield "token_embd.weight", (self.embd, self.vocab), first
        for il in range(self.layers):
            more = il < self.layers // 8 or il >= 7 * self.layers // 8 or (il - self.layers // 8) % 3 == 2
            yield from self._block(f"blk.{il}.", _Q6_K if more else _Q4_K, il)
        yield "output_norm.weight", (self.embd,), _F32
        if not self.tied:
            yield "output.weight", (self.embd, self.vocab), last

    def _block(self, at: str, better: int, il: int) -> Iterator[Row]:
        yield at + "attn_norm.weight", (self.embd,), _F32
        yield at + "ffn_norm.weight", (self.embd,), _F32
        if self.hybrid and (il + 1) % 4:
            yield from self._recurrent(at)
        else:
            wide, narrow = self.heads * self.head, self.heads_kv * self.head
            queries = wide * 2 if self.hybrid else wide  # its attention is gated
            plain = _Q8_0 if self.expert_type == _MXFP4 else _Q4_K
            yield at + "attn_q.weight", (self.embd, queries), plain
            yield at + "attn_k.weight", (self.embd, narrow), plain
            yield at + "attn_v.weight", (self.embd, narrow), better if plain == _Q4_K else plain
            yield at + "attn_output.weight", (wide, self.embd), plain
        if self.experts is None:
            yield at + "ffn_gate.weight", (self.embd, self.ff), _Q4_K
            yield at + "ffn_up.weight", (self.embd, self.ff), _Q4_K
            yield at + "ffn_down.weight", (self.ff, self.embd), better
            return
        count, _, width = self.experts
        down = better if self.expert_type == _Q4_K else self.expert_type
        yield at + "ffn_gate_inp.weight", (self.embd, count), _F32
        yield at + "ffn_gate_exps.weight", (self.embd, width, count), self.expert_type
        yield at + "ffn_up_exps.weight", (self.embd, width, count), self.expert_type
        yield at + "ffn_down_exps.weight", (width, self.embd, count), down

    def _recurrent(self, at: str) -> Iterator[Row]:
        """A gated delta net of Qwen3.5."""
        inner, conv = 4_096, 8_192
        yield at + "attn_qkv.weight", (self.embd, conv), _Q4_K
        yield at + "attn_gate.weight", (self.embd, inner), _Q4_K
        yield at + "ssm_conv1d.weight", (4, conv), _F32
        yield at + "ssm_alpha.weight", (self.embd, 32), _F32
        yield at + "ssm_beta.weight", (self.embd, 32), _F32
        yield at + "ssm_out.weight", (inner, self.embd), _Q4_K


def _qwen3(layers: int, embd: int, ff: int, heads: int, *, tied: bool = False) -> Shape:
    return Shape("qwen3", layers, embd, ff, heads, 8, 128, 151_936, 40_960, tied)


MODELS: dict[str, Shape] = {
    "qwen3-0.6b": _qwen3(28, 1_024, 3_072, 16, tied=True),
    "qwen3-4b": _qwen3(36, 2_560, 9_728, 32, tied=True),
    "qwen3-8b": _qwen3(36, 4_096, 12_288, 32),
    "qwen3-14b": _qwen3(40, 5_120, 17_408, 40),
    "qwen3-32b": _qwen3(64, 5_120, 25_600, 64),
    "qwen3-30b-a3b": Shape(
        "qwen3moe", 48, 2_048, 6_144, 32, 4, 128, 151_936, 262_144, experts=(128, 8, 768)
    ),
    "llama-3.1-8b": Shape("llama", 32, 4_096, 14_336, 32, 8, 128, 128_256, 131_072),
    "llama-3.3-70b": Shape("llama", 80, 8_192, 28_672, 64, 8, 128, 128_256, 131_072),
    "gemma-3-12b": Shape(
        "gemma3", 48, 3_840, 15_360, 16, 8, 256, 262_208, 131_072, True,
        further={"attention.sliding_window": 1_024},
    ),
    "gpt-oss-20b": Shape(
        "gpt-oss", 24, 2_880, 2_880, 64, 8, 64, 201_088, 131_072,
        experts=(32, 4, 2_880), expert_type=_MXFP4, further={"attention.sliding_window": 128},
    ),
    "qwen3.5-9b": Shape(
        "qwen35", 32, 4_096, 12_288, 16, 4, 256, 248_320, 262_144, hybrid=True,
        further={
            "full_attention_interval": 4, "ssm.conv_kernel": 4, "ssm.state_size": 128,
            "ssm.group_count": 16, "ssm.time_step_rank": 32, "ssm.inner_size": 4_096,
        },
    ),
}  # fmt: skip
"""All at Q4_K_M, but gpt-oss: MXFP4, as published."""
