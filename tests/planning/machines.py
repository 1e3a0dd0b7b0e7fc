"""Models and machines for planner tests: tensor tables in the shapes of well-known models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from appliance.gguf import Header, MetaValue, TensorInfo
from appliance.planning import DeviceMemory, HostMemory, Plan, PlanRequest, make_plan
from appliance.units import GIB, MIB

BUILD = "llama-server b10434"
HOST = HostMemory(32 * GIB, 24 * GIB, 8)


def llama_like(
    *,
    n_layer: int = 32,
    n_embd: int = 4_096,
    n_ff: int = 12_288,
    n_head: int = 32,
    n_head_kv: int = 8,
    n_vocab: int = 151_936,
    context: int = 40_960,
    bits: float = 4.8,
    tied: bool = False,
    arch: str = "qwen3",
    further: Mapping[str, int] | None = None,
) -> Header:
    """A header in the shape of a dense model; the defaults are Qwen3 8B at about 4.8 bits per weight."""
    head = n_embd // n_head
    sizes = {
        "attn_q": n_embd * n_embd,
        "attn_k": n_embd * n_head_kv * head,
        "attn_v": n_embd * n_head_kv * head,
        "attn_output": n_embd * n_embd,
        "ffn_gate": n_embd * n_ff,
        "ffn_up": n_embd * n_ff,
        "ffn_down": n_embd * n_ff,
    }
    named = [("token_embd.weight", n_embd * n_vocab)]
    named += [(f"blk.{il}.{name}.weight", size) for il in range(n_layer) for name, size in sizes.items()]
    if not tied:
        named.append(("output.weight", n_embd * n_vocab))
    metadata: dict[str, MetaValue] = {
        "general.architecture": arch,
        f"{arch}.block_count": n_layer,
        f"{arch}.embedding_length": n_embd,
        f"{arch}.feed_forward_length": n_ff,
        f"{arch}.attention.head_count": n_head,
        f"{arch}.attention.head_count_kv": n_head_kv,
        f"{arch}.context_length": context,
        **{f"{arch}.{key}": value for key, value in (further or {}).items()},
    }
    return Header(3, metadata, *_laid_out(named, n_embd, bits))


def moe_like(**further: Any) -> Header:
    """A header in the shape of Qwen3 30B A3B at about 4.8 bits per weight: 128 experts, 8 per token."""
    n_layer, n_embd, n_ff_exp, n_expert, n_vocab = 48, 2_048, 768, 128, 151_936
    sizes = {
        "attn_q": n_embd * 4_096,
        "attn_k": n_embd * 512,
        "attn_v": n_embd * 512,
        "attn_output": n_embd * 4_096,
        "ffn_gate_inp": n_embd * n_expert,
        "ffn_gate_exps": n_embd * n_ff_exp * n_expert,
        "ffn_up_exps": n_embd * n_ff_exp * n_expert,
        "ffn_down_exps": n_embd * n_ff_exp * n_expert,
    }
    named = [("token_embd.weight", n_embd * n_vocab), ("output.weight", n_embd * n_vocab)]
    named += [(f"blk.{il}.{name}.weight", size) for il in range(n_layer) for name, size in sizes.items()]
    metadata: dict[str, MetaValue] = {
        "general.architecture": "qwen3moe",
        "qwen3moe.block_count": n_layer,
        "qwen3moe.embedding_length": n_embd,
        "qwen3moe.feed_forward_length": 6_144,
        "qwen3moe.attention.head_count": 32,
        "qwen3moe.attention.head_count_kv": 4,
        "qwen3moe.attention.key_length": 128,
        "qwen3moe.attention.value_length": 128,
        "qwen3moe.context_length": 40_960,
        "qwen3moe.expert_count": n_expert,
        "qwen3moe.expert_used_count": 8,
        "qwen3moe.expert_feed_forward_length": n_ff_exp,
        **{f"qwen3moe.{key}": value for key, value in further.items()},
    }
    return Header(3, metadata, *_laid_out(named, n_embd, 4.8))


def _laid_out(
    named: list[tuple[str, int]], n_embd: int, bits: float
) -> tuple[tuple[TensorInfo, ...], int, int]:
    """(tensors, where the data begins, size of the file)."""
    tensors, offset = [], 0
    for name, elements in named:
        n_bytes = int(elements * bits / 8) // 32 * 32
        tensors.append(TensorInfo(name, (n_embd, elements // n_embd), "Q4_K", offset, n_bytes))
        offset += n_bytes
    return tuple(tensors), 4_096, 4_096 + offset


def gpu(free: int | None, *, name: str = "CUDA0", backend: str = "cuda", **further: Any) -> DeviceMemory:
    """A card with so much free memory."""
    return DeviceMemory(name, f"card {name}", backend, further.pop("total", free), free, **further)


def plan(header: Header, *devices: DeviceMemory, host: HostMemory = HOST, **request: Any) -> Plan:
    """A plan with the request's fields as keywords."""
    build = request.pop("engine_build", BUILD)
    parts = {name: request.pop(name, None) for name in ("learned", "mmproj", "draft")}
    adapters = request.pop("adapters", ())
    return make_plan(
        header,
        devices,
        host,
        PlanRequest(**request),
        model="model",
        engine_build=build,
        adapters=adapters,
        **parts,
    )


def codes(found: Plan) -> list[str]:
    """The codes of the reasons, in order."""
    return [reason.code for reason in found.reasons]


def flag(found: Plan, name: str) -> str:
    """The value of one flag."""
    return found.flags[found.flags.index(name) + 1]


__all__ = ["BUILD", "GIB", "HOST", "MIB", "codes", "flag", "gpu", "llama_like", "moe_like", "plan"]
