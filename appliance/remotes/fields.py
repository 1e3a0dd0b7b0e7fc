"""Which request fields go where, by name. The sources: llama.cpp's server and vLLM's request models."""

from __future__ import annotations

LLAMA_ONLY = frozenset((
    "cache_prompt", "id_slot", "n_keep", "n_discard", "n_cache_reuse", "n_indent", "t_max_predict_ms",
    "typical_p", "dynatemp_range", "dynatemp_exponent", "mirostat", "mirostat_tau", "mirostat_eta",
    "dry_multiplier", "dry_base", "dry_allowed_length", "dry_penalty_last_n", "dry_sequence_breakers",
    "xtc_probability", "xtc_threshold", "top_n_sigma", "samplers", "lora", "timings_per_token",
    "return_progress", "post_sampling_probs", "sse_ping_interval", "reasoning_format",
    "reasoning_control", "parse_tool_calls", "response_fields", "grammar_lazy", "grammar_triggers",
    "repeat_last_n", "penalize_nl", "min_keep", "return_tokens", "priority",
))  # fmt: skip
"""Dropped on the way to a remote. They steer llama-server's cache, slots, output or extra samplers, and
`priority` belongs to the remote's owner. The router keeps requests whose samplers matter on the local side
(`Features.local_fields`)."""

OPENAI_FIELDS = frozenset((
    "model", "messages", "prompt", "suffix", "echo", "best_of", "input", "encoding_format",
    "dimensions", "user", "stream", "stream_options", "temperature", "top_p", "n", "stop", "max_tokens",
    "max_completion_tokens", "presence_penalty", "frequency_penalty", "logit_bias", "logprobs",
    "top_logprobs", "response_format", "seed", "tools", "tool_choice", "parallel_tool_calls",
    "functions", "function_call", "reasoning_effort", "verbosity", "metadata", "modalities", "audio",
    "prediction", "service_tier", "store", "safety_identifier", "prompt_cache_key",
    "web_search_options",
))  # fmt: skip
"""All that another supplier gets: unknown fields are refused by some, and misread by others."""
