"""The operations of one block of a model, as the engine builds them for its worst batch.

Source: `build_qkv`, `build_attn`, `build_ffn` and `build_moe_ffn` of llama-graph.cpp and src/models/*.cpp of
llama.cpp (October 2026). What a block has follows from the names of its tensors.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Literal

from appliance.gguf import ModelShape
from appliance.planning.memory.graph import Graph, Tensor, floats

Where = Literal["device", "experts", "host"]
"""All of a block on the device; its routed experts in RAM; all in RAM, cache included."""

_POSITIONS = 4  # bytes per token
_POST_ATTENTION = ("post_attention_norm", "attn_post_norm")
_POST_FEED_FORWARD = ("post_ffw_norm", "ffn_post_norm")


@dataclass(frozen=True, slots=True)
class Block:
    """One block of the graph."""

    layer: int
    """The block that stands for all of its kind."""
    where: Where
    experts: bool
    """It routes tokens to experts."""


class Builder:
    """Adds blocks of one model to a graph."""

    def __init__(
        self,
        shape: ModelShape,
        roles: AbstractSet[str],
        graph: Graph,
        *,
        exact: bool,
        rotated: tuple[bool, bool],
        reordered: bool,
    ) -> None:
        """`exact`: the model's attention is the usual one; else it is a part with a size alone.

        `rotated`: keys and values are rotated before they are quantised. `reordered`: the device's backend
        moves independent operations to the front of a split.
        """
        self.shape, self.roles, self.graph = shape, roles, graph
        self.exact, self.rotated, self.reordered = exact, rotated, reordered
        self._bias = {name for name in roles if name.endswith(".bias")}

    def copied(self) -> Tensor:
        """The embedded tokens: looked up in RAM, copied to the device."""
        return self.graph.copy(floats(self.shape.n_embd))

    def looked_up(self, kinds: Iterable[bool]) -> Tensor:
        """The embedded tokens where all inputs are: masks, and room for embeddings from outside."""
        for windowed in sorted(set(kinds)):
            self.graph.copy(("mask", int(windowed)), once=True)
        self.graph.copy(floats(self.shape.n_embd))
        return self.graph.op(floats(self.shape.n_embd))

    def block(self, block: Block, residual: Tensor) -> Tensor:
        """Attention, then the feed-forward part; the next block's input."""
        middle = (self._attention if self.exact else self._opaque)(block, residual)
        e, g = self.shape.n_embd, self.graph
        norm = self._norm(block, middle, "ffn_norm", "post_attention_norm")
        out = self._experts(block, norm) if block.experts else self._feed_forward(block, norm, "")
        for role in _POST_FEED_FORWARD:
            if role in self.roles:
                out = self._post_norm(block, out, role)
        return g.op(floats(e), out, middle, in_place=True)

    def _attention(self, block: Block, residual: Tensor) -> Tensor:
        g, shape, layer = self.graph, self.shape, block.layer
        swa, e = shape.swa_layers[layer], shape.n_embd
        query = shape.n_head[layer] * (shape.head_k_swa if swa else shape.head_k)
        key, value = shape.kv_row(layer)
        norm = self._norm(block, residual, "attn_norm")
        q, k, v = self._query_key_value(block, (query, key, value), norm)
        sources = [q]
        if block.where == "host":
            g.elsewhere(k, v)
            sources += [g.copy(("k", layer)), g.copy(("v", layer))]
        else:
            g.use(k)
            g.use(v)
        sources.append(g.copy(("mask", int(swa)), once=True))
        attended = g.op(("attention", layer), *sources)
        if self.rotated[1]:
            out = shape.n_head[layer] * (shape.head_v_swa if swa else shape.head_v)
            attended = g.op(floats(out), self._rotation(1), attended)
        result = self._matmul(block, "attn_output", e, attended)
        for role in _POST_ATTENTION:
            if role in self.roles and "ffn_norm" in self.roles:
                result = self._post_norm(block, result, role)
        return g.op(floats(e), result, residual, in_place=True)

    def _query_key_value(
        self, block: Block, widths: tuple[int, int, int], norm: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        g, (query, key, value) = self.graph, widths
        if "attn_qkv" in self.roles:
            v = self._matmul(block, "attn_qkv", query + key + value, norm)
            q, k = (g.op(floats(n), v, g.copy(("other", _POSITIONS), once=True)) for n in (query, key))
            return q, k, v
        if self.reordered and block.where != "host":  # what is independent comes first
            q, v, k = (
                self._matmul(block, role, n, norm)
                for role, n in (("attn_q", query), ("attn_v", value), ("attn_k", key))
            )
            q = self._turned(block, "attn_q", query, q)
            v = self._spread(value, v)
            return q, self._turned(block, "attn_k", key, k), v
        q = self._turned(block, "attn_q", query, self._matmul(block, "attn_q", query, norm))
        if any(self.shape.swa_layers):  # with windows, keys come before values
            k = self._turned(block, "attn_k", key, self._matmul(block, "attn_k", key, norm))
            return q, k, self._spread(value, self._matmul(block, "attn_v", value, norm))
        v = self._spread(value, self._matmul(block, "attn_v", value, norm))
        return q, self._turned(block, "attn_k", key, self._matmul(block, "attn_k", key, norm)), v

    def _spread(self, width: int, values: Tensor) -> Tensor:
        return self.graph.op(floats(width), self._rotation(1), values) if self.rotated[1] else values

    def _rotation(self, which: int) -> Tensor:
        """The matrix that spreads outliers before a cache is quantised."""
        return self.graph.copy(("rotation", which), once=True)

    def _opaque(self, block: Block, residual: Tensor) -> Tensor:
        """Attention of another kind, or a recurrent state: the widest tensors of it."""
        g, shape, e = self.graph, self.shape, self.shape.n_embd
        norm = self._norm(block, residual, "attn_norm")
        swa = int(shape.swa_layers[block.layer])
        if shape.recurrent_layers[block.layer]:
            wide = 4 * shape.ssm_inner
            attended = g.op(floats(wide), norm)
        else:
            query = g.op(floats(max(shape.n_head) * shape.head_k), norm)
            sources = [query, g.copy(("mask", swa), once=True)]
            if block.where == "host":
                g.elsewhere(norm)
                sources += [g.copy(("k", block.layer)), g.copy(("v", block.layer))]
            attended = g.op(("attention", block.layer), *sources)
        result = self._matmul(block, "attn_output", e, attended)
        return g.op(floats(e), result, residual, in_place=True)

    def _turned(self, block: Block, role: str, size: int, out: Tensor) -> Tensor:
        """A query or key: normalised, turned by its position."""
        g, width = self.graph, floats(size)
        normed = f"{role}_norm" in self.roles
        if normed:
            out = g.op(width, out)
            out = g.op(width, out, *self._weight(block, f"{role}_norm"), in_place=True)
        out = g.op(width, out, g.copy(("other", _POSITIONS), once=True), in_place=normed)
        return g.op(width, self._rotation(0), out) if self.rotated[0] else out

    def _feed_forward(self, block: Block, norm: Tensor, suffix: str) -> Tensor:
        g, shape = self.graph, self.shape
        inner = shape.n_ff_shexp if suffix else shape.n_ff[block.layer]
        if f"ffn_gate{suffix}" in self.roles:
            gate = self._matmul(block, f"ffn_gate{suffix}", inner, norm)
            up = self._matmul(block, f"ffn_up{suffix}", inner, norm)
            product = g.op(floats(inner), gate, up)
        else:
            up = self._matmul(block, f"ffn_up{suffix}", inner, norm)
            product = g.op(floats(inner), up, in_place=True)
        return self._matmul(block, f"ffn_down{suffix}", shape.n_embd, product)

    def _experts(self, block: Block, norm: Tensor) -> Tensor:
        g, shape = self.graph, self.shape
        n, used = shape.n_expert, shape.n_expert_used
        inner, wide = floats(used * shape.n_ff_exp), floats(used * shape.n_embd)
        logits = g.op(floats(n), *self._weight(block, "ffn_gate_inp"), norm)
        scores = g.op(floats(n), logits, in_place=True)
        chosen = g.op(floats(n), scores)
        picked = g.op(floats(used), scores, chosen)
        total = g.op(floats(1), picked)
        weights = g.op(floats(used), picked, total)
        if "ffn_gate_up_exps" in self.roles:
            both = g.op(
                floats(2 * used * shape.n_ff_exp), *self._expert(block, "ffn_gate_up_exps"), norm, chosen
            )
            product = g.op(inner, both)
        else:
            gate = g.op(inner, *self._expert(block, "ffn_gate_exps"), norm, chosen)
            up = g.op(inner, *self._expert(block, "ffn_up_exps"), norm, chosen)
            product = g.op(inner, gate, up)
        down = g.op(wide, *self._expert(block, "ffn_down_exps"), product, chosen)
        weighed = g.op(wide, down, weights, in_place=True)
        out = g.op(floats(shape.n_embd), weighed)
        if used > 2:
            out = g.op(floats(shape.n_embd), out, weighed, in_place=True)
        if shape.n_ff_shexp:
            shared = self._feed_forward(block, norm, "_shexp")
            out = g.op(floats(shape.n_embd), out, shared, in_place=True)
        return out

    def _norm(self, block: Block, source: Tensor, *roles: str) -> Tensor:
        role = next((role for role in roles if role in self.roles), roles[0])
        out = self.graph.op(floats(self.shape.n_embd), source, in_place=True)
        return self.graph.op(floats(self.shape.n_embd), out, *self._weight(block, role), in_place=True)

    def _post_norm(self, block: Block, source: Tensor, role: str) -> Tensor:
        return self._norm(block, source, role)

    def _matmul(self, block: Block, role: str, size: int, source: Tensor) -> Tensor:
        out = self.graph.op(floats(size), *self._weight(block, role), source)
        if f"{role}.bias" in self._bias:
            out = self.graph.op(floats(size), out, *self._weight(block, f"{role}.bias"), in_place=True)
        return out

    def _weight(self, block: Block, role: str) -> tuple[Tensor, ...]:
        if block.where != "host" or role not in self.roles:
            return ()
        return (self.graph.copy(("weight", role), weight=True),)

    def _expert(self, block: Block, role: str) -> tuple[Tensor, ...]:
        if block.where == "device" or role not in self.roles:
            return ()
        return (self.graph.copy(("weight", role), weight=True),)
