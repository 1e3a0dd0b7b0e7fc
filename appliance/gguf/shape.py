"""The numbers of a model that decide its memory: layers, heads, windows, recurrent state.

Key names and defaults follow llama.cpp (`llama_model_base::load_hparams`, `src/models/*.cpp`, October 2026).
An architecture that is not known here is given its upper bound: every block caches the full context.
"""

from __future__ import annotations

from dataclasses import dataclass

from appliance.gguf.architectures import (
    DENSE_FIRST,
    ENCODERS,
    HYBRID,
    INTERVAL_HYBRIDS,
    KNOWN,
    NO_WINDOW,
    RECURRENT,
    SWA_PERIOD,
    WINDOW_DEFAULT,
    WINDOW_FIXED,
)
from appliance.gguf.fields import Fields
from appliance.gguf.header import Header

_GEMMA3N_OWN_CACHES = 20
_EXAONE4_WITH_WINDOW = 64  # blocks of the 32B; the engine ignores the window of the smaller ones


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A model's dimensions. Tuples have one entry per block, MTP blocks included."""

    arch: str
    known: bool
    """False: the caches are an upper bound, since the architecture is not known here."""
    n_layer: int
    """All blocks, as llama.cpp counts them for `-ngl` (`n_layer + 1` with the output head)."""
    n_layer_nextn: int
    """How many of the last blocks are MTP heads, which cache nothing in the main context."""
    n_ctx_train: int | None
    n_embd: int
    n_vocab: int
    n_head: tuple[int, ...]
    n_head_kv: tuple[int, ...]
    n_ff: tuple[int, ...]
    head_k: int
    head_v: int
    head_k_swa: int
    head_v_swa: int
    n_swa: int
    """Sliding window in tokens; 0 = none."""
    swa_layers: tuple[bool, ...]
    cache_layers: tuple[bool, ...]
    """Blocks that own an attention cache (not: recurrent, shared, without attention)."""
    recurrent_layers: tuple[bool, ...]
    state_floats: int
    """R + S of one recurrent block and one sequence, in 4-byte floats."""
    mla: bool
    """Compressed attention: only a key row is cached, and values are taken from it."""
    indexer_k: int
    """Width of the indexer's key row (DSA); 0 = none."""
    indexer_layers: tuple[bool, ...]
    n_expert: int
    n_expert_used: int
    """For each token; all of them where the header does not say."""
    n_ff_exp: int
    n_embd_per_layer: int
    ssm_inner: int
    encoder: bool
    """True: no cache and no generation (BERT and its kin)."""
    n_ff_shexp: int = 0
    """Width of the experts that every token passes; 0 = none."""

    def kv_row(self, layer: int) -> tuple[int, int]:
        """Elements of one cached token in this block: (key, value). (0, 0) for a block without a cache."""
        if not self.cache_layers[layer]:
            return 0, 0
        heads, swa = self.n_head_kv[layer], self.swa_layers[layer]
        key = heads * (self.head_k_swa if swa else self.head_k)
        return key, 0 if self.mla else heads * (self.head_v_swa if swa else self.head_v)


def shape_of(header: Header) -> ModelShape:
    """Dimensions from a header. Raises GgufError when it does not describe a language model."""
    fields = Fields(header)
    n_layer = fields.required("block_count", 1, 1_024)
    n_embd = fields.required("embedding_length", 1, 1 << 20)
    n_head = fields.per_layer("attention.head_count", n_layer, 0)
    head_k = fields.get("attention.key_length", n_embd // n_head[0] if n_head[0] else 0)
    head_v = fields.get("attention.value_length", n_embd // n_head[0] if n_head[0] else 0)
    nextn = min(fields.get("nextn_predict_layers", 0), n_layer)
    recurrent = _recurrent_layers(fields, header.arch, n_layer, nextn)
    n_swa, swa = _windows(fields, header.arch, n_layer, nextn, recurrent)
    indexer_k = fields.get("attention.indexer.key_length", 0)
    n_expert, n_expert_used = _experts(fields, n_layer)
    return ModelShape(
        arch=header.arch,
        known=header.arch in KNOWN,
        n_layer=n_layer,
        n_layer_nextn=nextn,
        n_ctx_train=fields.optional("context_length"),
        n_embd=n_embd,
        n_vocab=_vocabulary(fields, header),
        n_head=n_head,
        n_head_kv=_heads_kv(fields, n_layer),
        n_ff=fields.per_layer("feed_forward_length", n_layer, 0),
        head_k=head_k,
        head_v=head_v,
        head_k_swa=fields.get("attention.key_length_swa", head_k),
        head_v_swa=fields.get("attention.value_length_swa", head_v),
        n_swa=n_swa,
        swa_layers=swa,
        cache_layers=_cache_layers(fields, header.arch, n_layer, nextn, recurrent),
        recurrent_layers=recurrent,
        state_floats=_state_floats(fields, n_embd, n_head) if any(recurrent) else 0,
        mla=fields.get("attention.key_length_mla", 0) > 0,
        indexer_k=indexer_k,
        indexer_layers=_indexer_layers(fields, header.arch, n_layer, nextn) if indexer_k else (),
        n_expert=n_expert,
        n_expert_used=n_expert_used,
        n_ff_exp=max(fields.per_layer("expert_feed_forward_length", n_layer, 0)),
        n_embd_per_layer=fields.get("embedding_length_per_layer_input", 0),
        ssm_inner=fields.get("ssm.inner_size", 0) if header.arch in HYBRID else 0,
        encoder=header.arch in ENCODERS,
        n_ff_shexp=_shared_width(fields, n_layer),
    )


def _experts(fields: Fields, n_layer: int) -> tuple[int, int]:
    """(how many there are, how many of them work on a token); where that is not said, all of them."""
    count, used = fields.get("expert_count", 0), max(fields.per_layer("expert_used_count", n_layer, 0))
    if used > count:
        raise fields.bad("expert_used_count", f"{used} experts per token are more than the {count} there are")
    return count, used or count


def _shared_width(fields: Fields, n_layer: int) -> int:
    width = fields.get("expert_shared_feed_forward_length", 0)
    each = max(fields.per_layer("expert_feed_forward_length", n_layer, 0))
    return width or fields.get("expert_shared_count", 0) * each


def _heads_kv(fields: Fields, n_layer: int) -> tuple[int, ...]:
    if fields.has("attention.head_count_kv"):
        return fields.per_layer("attention.head_count_kv", n_layer, 0)
    return fields.per_layer("attention.head_count", n_layer, 0)


def _vocabulary(fields: Fields, header: Header) -> int:
    for tensor in header.tensors:
        if tensor.name == "token_embd.weight" and len(tensor.shape) > 1:
            return tensor.shape[1]
    return fields.length("tokenizer.ggml.tokens") or fields.get("vocab_size", 0)


def _windows(
    fields: Fields, arch: str, n_layer: int, nextn: int, recurrent: tuple[bool, ...]
) -> tuple[int, tuple[bool, ...]]:
    """(window, which blocks have it); `load_swa_pattern` and the arch files."""
    none = 0, (False,) * n_layer
    window = fields.get("attention.sliding_window", WINDOW_DEFAULT.get(arch, 0))
    if window <= 0 or arch in NO_WINDOW or (arch == "exaone4" and n_layer != _EXAONE4_WITH_WINDOW):
        return none
    if arch == "lfm2":
        return window, tuple(not r for r in recurrent)
    listed = fields.flags("attention.sliding_window_pattern", n_layer)
    if listed is not None:
        return window, listed
    if arch not in SWA_PERIOD:
        return none  # the engine keeps the full context in every block, whatever the file says
    period = fields.get("attention.sliding_window_pattern", SWA_PERIOD[arch])
    return WINDOW_FIXED.get(arch, window), tuple(
        il < n_layer - nextn and _in_window(il, period, arch in DENSE_FIRST) for il in range(n_layer)
    )


def _in_window(layer: int, period: int, dense_first: bool) -> bool:
    if period == 0:
        return True
    return layer % period != 0 if dense_first else layer % period < period - 1


def _recurrent_layers(fields: Fields, arch: str, n_layer: int, nextn: int) -> tuple[bool, ...]:
    if arch in RECURRENT or arch == "falcon-h1":
        return (True,) * n_layer
    trunk = n_layer - nextn
    if arch in INTERVAL_HYBRIDS:
        listed = fields.flags("attention.recurrent_layers", n_layer)
        if listed is not None:
            return tuple(listed[il] and il < trunk for il in range(n_layer))
        interval = fields.get("full_attention_interval", 4) or 1
        return tuple(il < trunk and (il + 1) % interval != 0 for il in range(n_layer))
    if arch not in HYBRID:
        return (False,) * n_layer
    heads = _heads_kv(fields, n_layer)
    if arch.startswith("nemotron_h"):
        n_ff = fields.per_layer("feed_forward_length", n_layer, 0)
        return tuple(il < trunk and heads[il] == 0 and n_ff[il] == 0 for il in range(n_layer))
    return tuple(il < trunk and heads[il] == 0 for il in range(n_layer))


def _cache_layers(
    fields: Fields, arch: str, n_layer: int, nextn: int, recurrent: tuple[bool, ...]
) -> tuple[bool, ...]:
    if arch in ENCODERS or arch in RECURRENT:
        return (False,) * n_layer
    heads = _heads_kv(fields, n_layer)
    own = n_layer - nextn
    if arch == "gemma3n":
        own = min(own, _GEMMA3N_OWN_CACHES)
    if arch == "gemma4":
        own = min(own, n_layer - fields.get("attention.shared_kv_layers", 0))
    both = arch == "falcon-h1"
    return tuple(il < own and heads[il] > 0 and (both or not recurrent[il]) for il in range(n_layer))


def _state_floats(fields: Fields, n_embd: int, n_head: tuple[int, ...]) -> int:
    """R + S per recurrent block (`llama_hparams::n_embd_r` and `n_embd_s`)."""
    if wkv := fields.get("wkv.head_size", 0):
        return fields.get("token_shift_count", 2) * n_embd + n_embd * wkv
    if l_cache := fields.get("shortconv.l_cache", 0):
        return n_embd * (l_cache - 1)
    conv = fields.get("ssm.conv_kernel", 0)
    if kda := fields.get("kda.head_dim", 0):
        heads = max(n_head)
        return 3 * (conv - 1 if conv else 3) * heads * kda + kda * kda * heads
    inner, state = fields.get("ssm.inner_size", 0), fields.get("ssm.state_size", 0)
    groups = fields.get("ssm.group_count", 0)
    return max(conv - 1, 0) * (inner + 2 * groups * state) + state * inner


def _indexer_layers(fields: Fields, arch: str, n_layer: int, nextn: int) -> tuple[bool, ...]:
    trunk = n_layer - nextn
    full = fields.flags("attention.indexer.types", trunk)
    if full is None and arch == "glm-dsa" and (fields.optional("context_length") or 0) >= 1 << 20:
        # GLM 5.2 without the list: the first three blocks, then every fourth (GLM_5_2_DEFAULT_INDEXER_TYPES)
        full = tuple(il < 2 or (il - 2) % 4 == 0 for il in range(trunk))
    full = full or (True,) * trunk
    return tuple(il < trunk and full[il] for il in range(n_layer))
