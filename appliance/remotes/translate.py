"""A request in llama-server's words -> the same request in the remote's words. Pure.

Both vLLM and llama-server ignore unknown fields silently, so a field that is passed on unread gives a wrong
answer with status 200. Each field is mapped, dropped where the text doesn't depend on it, or refused.
"""

from __future__ import annotations

from typing import Any, Literal

from appliance.errors import Rejected
from appliance.remotes import sampling, structure
from appliance.remotes.fields import LLAMA_ONLY, OPENAI_FIELDS

RemoteKind = Literal["vllm", "openai"]

MAX_STOPS = 4
MAX_LOGPROBS = 20


class Untranslatable(Rejected):
    """A field that the remote can't honour and would ignore. The request can only be answered locally."""

    def __init__(self, field: str, why: str = "a remote can't honour it") -> None:
        super().__init__(
            f"The field `{field}` keeps this request on the local side: {why}.",
            reason="reject.unsupported",
            http_status=400,
            hint="Leave the field out, or send the request with `X-Appliance-Route: local`.",
        )
        self.field = field


def translate(
    path: str, body: dict[str, Any], *, model: str, kind: RemoteKind = "vllm", same_tokenizer: bool = False
) -> dict[str, Any]:
    """The body for the remote, with its `model`. The given body isn't changed.

    `same_tokenizer`: token ids mean the same there, so `logit_bias` may go along; else it is dropped.
    Raises Untranslatable.
    """
    made = {name: value for name, value in body.items() if value is not None}
    made["model"] = model
    chat = path.endswith("/chat/completions")
    if chat or path.endswith("/completions"):
        _generation(made, chat=chat, kind=kind, same_tokenizer=same_tokenizer)
    for name in LLAMA_ONLY & made.keys():
        del made[name]
    return {name: made[name] for name in made if name in OPENAI_FIELDS} if kind == "openai" else made


def _generation(made: dict[str, Any], *, chat: bool, kind: RemoteKind, same_tokenizer: bool) -> None:
    if made.pop("grammar", None):
        raise Untranslatable("grammar", "GBNF grammars are understood by llama.cpp only")
    structure.shape(made)
    structured = made.get("structured_outputs")
    if kind == "openai" and structured:
        raise Untranslatable("structured_outputs", "only vLLM knows it")
    _length(made, chat=chat, kind=kind)
    _logprobs(made, chat=chat)
    _stops(made)
    _tools(made)
    _logit_bias(made, same_tokenizer=same_tokenizer)
    if "stream_options" in made and not made.get("stream"):
        del made["stream_options"]
    wrong = sampling.bound(made)
    if wrong:
        raise Untranslatable(wrong, "its value is outside the remote's range")
    if kind == "vllm":
        sampling.pin(made)
        _thinking(made)
        if chat:
            structure.prefill(made)


def _length(made: dict[str, Any], *, chat: bool, kind: RemoteKind) -> None:
    """n_predict, max_tokens and max_completion_tokens: below 1 means "no limit" in llama-server only."""
    target = "max_completion_tokens" if chat else "max_tokens"
    n_predict = made.pop("n_predict", None)
    for name in ("max_tokens", "max_completion_tokens"):
        if name in made and not _positive(made[name]):
            del made[name]
    if not chat and "max_completion_tokens" in made:
        made.setdefault("max_tokens", made.pop("max_completion_tokens"))
    if _positive(n_predict) and "max_tokens" not in made:
        made.setdefault(target, n_predict)
    if not chat and kind == "vllm":
        # Left out, vLLM stops after 16 tokens; null is "until the context is full", as llama-server does it.
        made.setdefault("max_tokens", None)


def _logprobs(made: dict[str, Any], *, chat: bool) -> None:
    n_probs = made.pop("n_probs", None)
    if _positive(n_probs):
        if chat:
            made.setdefault("logprobs", True)
            made.setdefault("top_logprobs", n_probs)
        else:
            made.setdefault("logprobs", n_probs)
    if chat and "top_logprobs" in made:
        made.setdefault("logprobs", True)
    asked = made.get("top_logprobs" if chat else "logprobs")
    if isinstance(asked, int) and asked > MAX_LOGPROBS:
        field = "n_probs" if _positive(n_probs) else "top_logprobs" if chat else "logprobs"
        raise Untranslatable(field, f"a remote gives at most {MAX_LOGPROBS} alternatives")


def _stops(made: dict[str, Any]) -> None:
    stop = made.get("stop")
    if not isinstance(stop, list):
        return
    if len(stop) > MAX_STOPS:
        raise Untranslatable("stop", f"a remote takes at most {MAX_STOPS} stop strings")
    if not stop:
        del made["stop"]


def _tools(made: dict[str, Any]) -> None:
    if not made.get("tools"):
        for name in ("tools", "tool_choice", "parallel_tool_calls"):
            made.pop(name, None)


def _logit_bias(made: dict[str, Any], *, same_tokenizer: bool) -> None:
    """[[id, bias], ...] or {"id": bias} -> {"id": bias}; `false` bans a token. Only ids can go along."""
    bias = made.pop("logit_bias", None)
    if not bias or not same_tokenizer:
        return
    pairs = (
        bias.items() if isinstance(bias, dict) else (p for p in bias if isinstance(p, list) and len(p) == 2)
    )
    kept: dict[str, float] = {}
    for token, value in pairs:
        if value is False:
            value = -100
        if str(token).isdecimal() and isinstance(value, (int, float)) and not isinstance(value, bool):
            kept[str(token)] = max(-100.0, min(100.0, float(value)))
    if kept:
        made["logit_bias"] = kept


def _thinking(made: dict[str, Any]) -> None:
    budgets = [made.pop(name, None) for name in ("reasoning_budget_tokens", "thinking_budget_tokens")]
    for budget in budgets:
        if isinstance(budget, int) and budget >= 0:
            made.setdefault("thinking_token_budget", budget)


def _positive(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 1
