"""What the engine knows about architectures beyond their metadata: windows, recurrence, caches.

Source: src/models/*.cpp, src/llama-arch.cpp and `llama_model::create_memory` of llama.cpp (October 2026).
"""

from __future__ import annotations

SWA_PERIOD: dict[str, int] = {
    "afmoe": 4, "cohere2": 4, "cohere2moe": 4, "exaone-moe": 4, "exaone4": 4, "gemma-embedding": 6,
    "gemma2": 2, "gemma3": 6, "gemma3n": 5, "gpt-oss": 2, "laguna": 4, "llama4": 4, "mellum": 4,
    "modern-bert": 3, "muse-glimmer": 4, "olmo2": 4, "plamo3": 8, "smallthinker": 4,
    # these list their blocks in the file; the period counts when the list is missing
    "gemma4": 6, "granite_swa": 0, "maple": 0, "mimo2": 0, "spark2_5": 0, "step35": 0,
}  # fmt: skip
"""One block in so many sees the full context; the others see a window. 0 = none sees it."""

DENSE_FIRST = frozenset({"cohere2moe", "laguna", "modern-bert", "smallthinker"})
"""The full block is the first of each period instead of the last."""

WINDOW_DEFAULT = {"gemma2": 4_096, "llama4": 8_192}
"""Windows that hold without metadata."""

WINDOW_FIXED = {"llama4": 8_192, "smallthinker": 4_096}
"""Windows that hold whatever the metadata says."""

NO_WINDOW = frozenset({"phi3"})
"""The file names a window; the engine ignores it."""

RECURRENT = frozenset({"mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"})
"""No attention at all."""

INTERVAL_HYBRIDS = frozenset({"qwen3next", "qwen35", "qwen35moe", "qwen4exp", "minimax-01"})
"""Every n-th block has attention, the others are recurrent."""

HYBRID = INTERVAL_HYBRIDS | {
    "jamba", "falcon-h1", "plamo2", "granitehybrid", "lfm2", "lfm2moe", "nemotron_h", "nemotron_h_moe",
    "kimi-linear", "kimi-k3", "bailingmoe3", "glm5-next",
}  # fmt: skip
"""Attention and recurrent blocks in one model; usually `head_count_kv` 0 marks the recurrent ones."""

ENCODERS = frozenset(
    {
        "bert", "nomic-bert", "nomic-bert-moe", "jina-bert-v2", "jina-bert-v3", "neo-bert", "eurobert",
        "modern-bert", "gemma-embedding", "dream", "llada", "llada-moe", "rnd1",
    }
)  # fmt: skip
"""No cache."""

KNOWN = (
    frozenset(SWA_PERIOD)
    | NO_WINDOW
    | RECURRENT
    | HYBRID
    | ENCODERS
    | {
        "apertus", "arcee", "arctic", "baichuan", "bailingmoe", "bailingmoe2", "bitnet",
        "bitnet-25", "bloom", "chameleon", "chatglm", "codeshell", "command-r", "dbrx", "deci",
        "deepseek", "deepseek2", "deepseek32", "dots1", "ernie4_5", "ernie4_5-moe", "exaone",
        "falcon", "gemma", "glm-dsa", "glm4", "glm4moe", "gpt2", "gptneox", "granite", "granitemoe",
        "grok", "grovemoe", "hunyuan-dense", "hunyuan-moe", "internlm2", "jais", "llama", "minicpm",
        "minicpm3", "minimax-m2", "mistral3", "mistral4", "mpt", "nemotron", "olmo", "olmoe",
        "openelm", "orion", "phi2", "phimoe", "plamo", "plm", "qwen", "qwen2", "qwen2moe",
        "qwen2vl", "qwen3", "qwen3moe", "qwen3vl", "qwen3vlmoe", "refact", "seed_oss", "smollm3",
        "stablelm", "starcoder", "starcoder2", "xverse",
    }
)  # fmt: skip
"""Caches of these are computed by the engine's own rule."""
