"""Rows of public llama.cpp logs (tests/data/memory_truth.json) as headers and loads."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from appliance.gguf import Header, ModelShape, shape_of
from appliance.planning import Load
from appliance.planning.memory.cache import pad

Row = dict[str, Any]
DATA = Path(__file__).parent.parent / "data"
MIB = 1 << 20
_HOST = re.compile(r"(CPU|.*_Host|.*_Mapped|CPU_REPACK|AMX)$")


def rows() -> list[Row]:
    """All rows."""
    loaded: list[Row] = json.loads((DATA / "memory_truth.json").read_text())
    return loaded


def shape(row: Row) -> ModelShape:
    """The row's model, by way of the metadata that its file has."""
    return shape_of(Header(3, metadata(row), (), 0, None))


def metadata(row: Row) -> dict[str, Any]:
    """What the row's file says about its model."""
    found: dict[str, Any] = {"general.architecture": row["arch"]}
    for key, value in _fields(row).items():
        if value is not None:
            found[f"{row['arch']}.{key}"] = tuple(value) if isinstance(value, list) else value
    return found


def _fields(row: Row) -> dict[str, Any]:
    extra = row["extra"]
    n_layer = extra.get("n_layer_all") or row["n_layer"]
    fields = {
        "block_count": n_layer,
        "nextn_predict_layers": n_layer - row["n_layer"],
        "embedding_length": row["n_embd"] or 4096,  # one row has none; its cache does not depend on it
        "attention.head_count": row["n_head"] or 32,
        "attention.head_count_kv": row["n_head_kv"],
        "attention.key_length": row["n_embd_head_k"],
        "attention.value_length": row["n_embd_head_v"],
        "attention.key_length_swa": extra.get("n_embd_head_k_swa"),
        "attention.value_length_swa": extra.get("n_embd_head_v_swa"),
        "attention.shared_kv_layers": extra.get("shared_kv_layers"),
        "attention.sliding_window": row["n_swa"],
        "feed_forward_length": _feed_forward(row),
        "vocab_size": row["n_vocab"],
        "expert_count": row["n_expert"],
        "expert_used_count": row["n_expert_used"],
        "expert_feed_forward_length": extra.get("n_ff_exp"),
        "embedding_length_per_layer_input": extra.get("embedding_length_per_layer_input"),
        "full_attention_interval": extra.get("full_attention_interval"),
        "ssm.conv_kernel": extra.get("ssm_d_conv"),
        "ssm.inner_size": extra.get("ssm_d_inner"),
        "ssm.state_size": extra.get("ssm_d_state"),
        "ssm.group_count": extra.get("ssm_n_group"),
        "attention.indexer.key_length": extra.get("indexer_head_dim"),
        "context_length": 1 << 20 if row["arch"] == "glm-dsa" else 1 << 17,
    }
    if row["arch"] == "gemma4":
        fields |= _gemma4(row)
    if row["arch"] == "gemma3":
        fields["attention.sliding_window"] = None  # these builds kept the full context in every block
    mla = extra.get("mla_attn") not in (None, "0") or row["arch"] == "glm-dsa"
    if mla:
        fields |= {
            "attention.key_length_mla": 192,
            "attention.value_length_mla": 128,
            "attention.head_count_kv": 1,
            "attention.key_length": 576,
            "attention.value_length": 512,
        }
    return fields


def _gemma4(row: Row) -> dict[str, Any]:
    """Per-block lists. The rows give counts; the files have one full block at the end of each group."""
    extra, n_layer = row["extra"], row["n_layer"]
    full, swa = extra["kv_layers_full"], extra["kv_layers_swa"]
    period = (full + swa) // full
    windowed = [il % period != period - 1 for il in range(n_layer)]
    heads = [extra["n_head_kv_swa"] if w else extra["n_head_kv_full"] for w in windowed]
    return {
        "attention.sliding_window_pattern": windowed,
        "attention.head_count_kv": heads,
        "attention.shared_kv_layers": n_layer - full - swa,
        # the E models have per-layer embeddings of 256, also where the row does not say so
        "embedding_length_per_layer_input": 256 if full + swa < n_layer else None,
    }


def _feed_forward(row: Row) -> Any:
    if listed := row["extra"].get("n_ff_array"):
        parts = re.findall(r"(\d+) x(\d+)", listed)
        return [int(size) for size, times in parts for _ in range(int(times))]
    return row["n_ff"]


def load(row: Row) -> Load:
    """The row's settings as the engine sees them."""
    extra = row["extra"]
    slots = row["n_parallel"] or 1
    unified = extra.get("kv_unified", True)
    per_stream = row["n_ctx"] if unified else pad(row["n_ctx"] // slots)
    implied = row.get("kv_type_implied") or "f16"
    ubatch = min(row["n_ubatch"] or 512, row["n_ctx"])
    return Load(
        ctx=per_stream,
        slots=slots,
        n_ubatch=ubatch,
        kv_k=str(row["type_k"] or implied),
        kv_v=str(row["type_v"] or implied),
        n_outputs=extra.get("n_outputs_max") or slots,
        # an old build that says nothing about flash attention had it off
        flash_attn=row["flash_attn"] != "off" and (row["flash_attn"] == "on" or row["era"] != "old"),
        unified=unified,
    )


def is_host(name: str) -> bool:
    """Whether a buffer of this name is RAM."""
    return bool(_HOST.match(name))


def logged(row: Row, key: str, *, host: bool | None = None) -> float:
    """Sum of a figure over the buffers (MiB); with `host`, only those of RAM or only those of devices."""
    return sum(
        float(buffers.get(key, 0.0))
        for name, buffers in row["device_buffers"].items()
        if host is None or bool(_HOST.match(name)) == host
    )


def largest_device(row: Row, key: str) -> float | None:
    """The largest figure of a device, else of the CPU (MiB)."""
    for host in (False, True):
        found = [
            b[key]
            for name, b in row["device_buffers"].items()
            if key in b and bool(_HOST.match(name)) == host and not name.endswith("_Host")
        ]
        if found:
            return float(max(found))
    return None
