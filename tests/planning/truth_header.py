"""A header with a tensor table for a row of a public log: from the dimensions and the quant."""

from __future__ import annotations

import re
from typing import Any

from appliance.gguf import Header, MetaValue, ModelShape, TensorInfo, shape_of

Row = dict[str, Any]

_BITS = {
    "Q2_K": 2.625, "Q3_K": 3.4375, "Q4_K": 4.5, "Q5_K": 5.5, "Q6_K": 6.5625, "Q8_0": 8.5, "Q4_0": 4.5,
    "Q4_1": 5.0, "Q5_0": 5.5, "Q5_1": 6.0, "IQ4_XS": 4.25, "IQ4_NL": 4.5, "MXFP4": 4.25, "F16": 16.0,
    "BF16": 16.0,
}  # fmt: skip
"""Bits per weight of the format that most tensors of such a file have."""
_FINER = {"Q2_K": "Q3_K", "Q3_K": "Q4_K", "Q4_K": "Q6_K", "Q5_K": "Q6_K"}
"""What `llama-quantize` gives `ffn_down` in mixed formats."""
_UNKNOWN_BITS = 4.5


def with_tensors(row: Row, metadata: dict[str, MetaValue]) -> Header:
    """The header of a file like the row's."""
    shape = shape_of(Header(3, metadata, (), 0, None))
    tensors = [
        TensorInfo(name, (shape.n_embd, n // shape.n_embd), "Q4_K", 0, int(n * bits / 8))
        for name, n, bits in _tensors(row, shape)
    ]
    return Header(3, metadata, tuple(tensors), 0, None)


def _tensors(row: Row, shape: ModelShape) -> list[tuple[str, int, float]]:
    """(name, elements, bits per weight)."""
    quant = _quant(row)
    bits, fine = _BITS.get(quant, _UNKNOWN_BITS), _BITS.get(_FINER.get(quant, quant), _UNKNOWN_BITS)
    found = [("token_embd.weight", shape.n_embd * shape.n_vocab, bits)]
    if row["arch"] not in ("gemma2", "gemma3", "gemma4"):
        found.append(("output.weight", shape.n_embd * shape.n_vocab, bits))
    for layer in range(shape.n_layer):
        parts = {**_attention(shape, layer), **_feed_forward(row, shape, layer)}
        for role, elements in parts.items():
            width = 32.0 if elements == shape.n_embd else fine if "down" in role else bits
            found.append((f"blk.{layer}.{role}.weight", elements, width))
    return found


def _quant(row: Row) -> str:
    match = re.search(r"MXFP4|BF16|F16|IQ\d_[A-Z]+|Q\d_[K01]", row["quant"] or "")
    return match[0] if match else ""


def _attention(shape: ModelShape, layer: int) -> dict[str, int]:
    e = shape.n_embd
    if shape.recurrent_layers[layer]:
        return {"attn_norm": e, "attn_qkv": 2 * e * shape.ssm_inner, "ssm_out": e * shape.ssm_inner}
    heads = shape.n_head[layer]
    if shape.mla:  # the up-projections of queries, keys and values are the large ones
        return {"attn_norm": e, "attn_q_b": 24_576 * 1_536, "attn_output": e * heads * 128}
    key, value = shape.kv_row(layer)
    query, out = heads * shape.head_k, heads * shape.head_v
    sizes = {"attn_norm": e, "attn_q": e * query, "attn_k": e * key, "attn_v": e * value}
    sizes["attn_output"] = e * out
    if shape.arch.startswith("qwen3"):
        sizes |= {"attn_q_norm": shape.head_k, "attn_k_norm": shape.head_k}
    if shape.arch.startswith("gemma"):
        sizes |= {"post_attention_norm": e, "post_ffw_norm": e}
    return sizes


def _feed_forward(row: Row, shape: ModelShape, layer: int) -> dict[str, int]:
    e = shape.n_embd
    routed = shape.n_expert and layer >= (row["extra"].get("n_layer_dense_lead") or 0)
    if not routed:
        inner = e * shape.n_ff[layer]
        return {"ffn_norm": e, "ffn_gate": inner, "ffn_up": inner, "ffn_down": inner}
    inner = e * shape.n_ff_exp * shape.n_expert
    return {
        "ffn_norm": e,
        "ffn_gate_inp": e * shape.n_expert,
        "ffn_gate_exps": inner,
        "ffn_up_exps": inner,
        "ffn_down_exps": inner,
    }
