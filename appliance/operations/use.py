"""What a model is for, by its header, and how it is started for that.

Pure, and apart from the catalog, which a file has no need of.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from appliance.gguf import Header
from appliance.gguf.architectures import ENCODERS
from appliance.planning import Pooling

if TYPE_CHECKING:
    from appliance.catalog import Use

_RANK = 4
"""`pooling_type` of a reranker. Source: `enum llama_pooling_type` in include/llama.h."""
_POOLINGS: dict[int, Pooling] = {1: "mean", 2: "cls", 3: "last"}
_VECTORS_ONLY = frozenset({"embedding", "rerank"})
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


@dataclass(frozen=True, slots=True)
class Mode:
    """How the engine is started for what a model is for."""

    embedding: bool = False
    reranking: bool = False
    pooling: Pooling | None = None
    """Of embeddings: how the vectors of a text's tokens become one."""
    alone: bool = False
    """It is for nothing else: it writes no text."""
    in_one_piece: bool = False
    """And a text has to be worked on at once."""

    @property
    def vectors(self) -> bool:
        """Whether the engine keeps a result for each token."""
        return self.embedding or self.reranking


PLAIN = Mode()
"""Text alone."""


def mode_of(header: Header, use: Collection[str], pooling: Pooling | None = None) -> Mode:
    """By the words of the catalog; `pooling` as its entry states it, which wins over the file.

    A model for reranking does nothing else. The engine splits a text only where the last token has seen all
    others and a cache keeps what they were (`can_split` in llama.cpp's server): not for a mean, not for an
    encoder. A chat model that is marked for embeddings, too, keeps its micro-batch: a longer one would cost
    memory that its chats don't need, so longer texts are refused.
    """
    causal = (
        header.arch not in ENCODERS and header.metadata.get(f"{header.arch}.attention.causal") is not False
    )
    if "rerank" in use:
        return Mode(reranking=True, alone=True, in_one_piece=not causal)
    if "embedding" not in use:
        return PLAIN
    own = header.metadata.get(f"{header.arch}.pooling_type")
    taken = pooling or (_POOLINGS.get(own) if isinstance(own, int) else None) or "mean"
    alone = set(use) <= _VECTORS_ONLY
    whole = alone and not (causal and taken == "last")
    return Mode(embedding=True, pooling=taken, alone=alone, in_one_piece=whole)
