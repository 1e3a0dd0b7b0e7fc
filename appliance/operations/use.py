"""What a model is for, by its header. Pure, and apart from the catalog, which a file has no need of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from appliance.gguf import Header
from appliance.gguf.architectures import ENCODERS

if TYPE_CHECKING:
    from appliance.catalog import Use

_RANK = 4
"""`pooling_type` of a reranker. Source: `enum llama_pooling_type` in include/llama.h."""
_GENERATES = frozenset({"dream", "llada", "llada-moe", "rnd1"})
"""Architectures without a cache that write text all the same."""


def use_of(header: Header) -> tuple[Use, ...]:
    """The catalog's words for it."""
    pooling = header.metadata.get(f"{header.arch}.pooling_type")
    if pooling == _RANK:
        return ("rerank",)
    known = isinstance(pooling, int) and not isinstance(pooling, bool) and pooling > 0
    if known or header.arch in ENCODERS - _GENERATES:
        return ("embedding",)
    return ("chat",) if "tokenizer.chat_template" in header.metadata else ("completion",)
