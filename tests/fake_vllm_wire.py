"""What vLLM's OpenAI server writes (errors, chunks, replies, metrics), and its checks before it generates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

RANGES = {
    "temperature": (0, 2), "min_p": (0, 1), "presence_penalty": (-2, 2), "frequency_penalty": (-2, 2),
}  # fmt: skip
CREATED = 1_760_000_000


@dataclass(frozen=True, slots=True)
class Pieces:
    """What the fake says, token by token."""

    words: tuple[str, ...]
    reasoning: tuple[str, ...] = ()
    tool: tuple[str, Sequence[str]] | None = None
    """A function's name and the pieces of its arguments, called instead of words when tools are given."""


class Refused(Exception):
    """An error with a real status, before the stream begins."""

    def __init__(self, status: int, kind: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.body = error_body(status, kind, message, param)


def error_body(status: int, kind: str, message: str, param: str | None = None) -> dict[str, Any]:
    """The object form; only the 401 of the key check has a string instead."""
    return {"error": {"message": message, "type": kind, "param": param, "code": status}}


def bad_request(message: str, param: str | None = None) -> Refused:
    return Refused(400, "BadRequestError", message, param)


def check(body: Mapping[str, Any], *, chat: bool) -> None:
    """The 400s of vLLM's request models. Unknown fields pass, as they do there."""
    if body.get("tools") == []:
        raise bad_request("tools must not be an empty list", "tools")
    if body.get("tool_choice") not in (None, "none") and not body.get("tools"):
        raise bad_request("When using `tool_choice`, `tools` must be set.", "tool_choice")
    if body.get("stream_options") and not body.get("stream"):
        raise bad_request("Stream options can only be defined when `stream=True`.", "stream_options")
    stop = body.get("stop")
    if isinstance(stop, list) and len(stop) > 4:
        raise bad_request("at most 4 stop strings are allowed", "stop")
    for name in ("max_tokens", "max_completion_tokens"):
        if body.get(name) is not None and body[name] < 1:
            raise bad_request(f"{name} must be at least 1, got {body[name]}.", name)
    _check_sampling(body)
    if chat and body.get("top_logprobs") and not body.get("logprobs"):
        raise bad_request("when using `top_logprobs`, `logprobs` must be set to true.", "top_logprobs")
    if chat and body.get("continue_final_message") and body.get("add_generation_prompt", True):
        raise bad_request("Cannot set both `continue_final_message` and `add_generation_prompt` to True.")
    wanted = body.get("response_format")
    if wanted and wanted.get("type") == "json_schema" and not (wanted.get("json_schema") or {}).get("name"):
        raise bad_request("json_schema with name and schema must be set", "response_format")


def _check_sampling(body: Mapping[str, Any]) -> None:
    for name, (low, high) in RANGES.items():
        if body.get(name) is not None and not low <= body[name] <= high:
            raise bad_request(f"{name} must be in [{low}, {high}], got {body[name]}.", name)
    if body.get("top_p") is not None and not 0 < body["top_p"] <= 1:
        raise bad_request(f"top_p must be in (0, 1], got {body['top_p']}.", "top_p")
    if body.get("top_k") is not None and body["top_k"] < -1:
        raise bad_request(f"top_k must be 0 (disable), or at least 1, got {body['top_k']}.", "top_k")
    if body.get("repetition_penalty") is not None and body["repetition_penalty"] <= 0:
        raise bad_request("repetition_penalty must be greater than zero.", "repetition_penalty")
    if body.get("logit_bias") is not None and not isinstance(body["logit_bias"], dict):
        raise Refused(400, "Bad Request", "logit_bias: Input should be a valid dictionary")
    for name in ("logprobs", "top_logprobs"):
        if not isinstance(body.get(name), bool) and (body.get(name) or 0) > 20:
            raise bad_request(f"Requested {name} of {body[name]} is greater than max allowed: 20", name)


def prompt_tokens(body: Mapping[str, Any], *, chat: bool) -> int:
    """One token a word, so that a test can count."""
    if not chat:
        return len(str(body.get("prompt", "")).split())
    return sum(len(str(message.get("content") or "").split()) for message in body.get("messages", ()))


def check_length(prompt: int, wanted: int | None, limit: int) -> None:
    """The two ways to be too long."""
    reduce = " Please reduce the length of the input prompt"
    start = f"This model's maximum context length is {limit} tokens. However, "
    if prompt >= limit:
        raise bad_request(
            f"{start}your prompt contains {prompt} input tokens, which exceeds this limit even without any"
            f" output tokens.{reduce}.",
            "input_tokens",
        )
    if wanted is not None and prompt + wanted > limit:
        raise bad_request(
            f"{start}you requested {wanted} output tokens and your prompt contains at least {prompt} input"
            f" tokens, for a total of at least {prompt + wanted} tokens.{reduce} or the number of requested"
            " output tokens.",
            "input_tokens",
        )


def model_row(name: str, root: str, max_model_len: int) -> dict[str, Any]:
    """An entry of /v1/models."""
    return {
        "id": name, "object": "model", "created": CREATED, "owned_by": "vllm", "root": root, "parent": None,
        "max_model_len": max_model_len, "permission": [],
    }  # fmt: skip


def usage(prompt: int, output: int) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt, "total_tokens": prompt + output, "completion_tokens": output,
        "prompt_tokens_details": None,
    }  # fmt: skip


def chat_deltas(
    reasoning: Sequence[str], words: Sequence[str], tool: tuple[str, Sequence[str]] | None
) -> Iterator[dict[str, Any]]:
    """The deltas after the role's: one a token."""
    for piece in reasoning:
        yield {"reasoning": piece}
    for piece in words:
        yield {"content": piece}
    if tool is not None:
        name, pieces = tool
        head = {"id": "chatcmpl-tool-1", "type": "function", "index": 0}
        yield {"tool_calls": [{**head, "function": {"name": name, "arguments": ""}}]}
        for piece in pieces:
            yield {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}


def chunk(
    request_id: str,
    model: str,
    choice: dict[str, Any] | None,
    *,
    chat: bool,
    used: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """One event's JSON; without a choice it is the usage chunk."""
    made: dict[str, Any] = {
        "id": request_id,
        "object": "chat.completion.chunk" if chat else "text_completion",
        "created": CREATED,
        "model": model,
        "choices": []
        if choice is None
        else [{"index": 0, "logprobs": None, "finish_reason": None, **choice}],
    }
    if used is not None:
        made["usage"] = used
    return made


def chat_message(
    reasoning: Sequence[str], words: Sequence[str], tool: tuple[str, Sequence[str]] | None
) -> dict[str, Any]:
    """The message of a plain reply."""
    calls: list[dict[str, Any]] = []
    if tool is not None:
        call = {"name": tool[0], "arguments": "".join(tool[1])}
        calls = [{"id": "chatcmpl-tool-1", "type": "function", "function": call}]
    return {
        "role": "assistant", "content": "".join(words) or None, "refusal": None, "tool_calls": calls,
        "reasoning": "".join(reasoning) or None,
    }  # fmt: skip


def metrics_text(model: str, running: int, waiting: int) -> str:
    """The part of /metrics that a gateway reads, with its neighbours."""
    labels = f'{{engine="0",model_name="{model}"}}'
    return "\n".join(
        (
            "# HELP vllm:num_requests_running Number of requests in model execution batches.",
            "# TYPE vllm:num_requests_running gauge",
            f"vllm:num_requests_running{labels} {running}.0",
            "# HELP vllm:num_requests_waiting Number of requests waiting to be processed.",
            "# TYPE vllm:num_requests_waiting gauge",
            f"vllm:num_requests_waiting{labels} {waiting}.0",
            f'vllm:num_requests_waiting_by_reason{{engine="0",reason="capacity"}} {waiting}.0',
            f"vllm:kv_cache_usage_perc{labels} 0.25",
            "",
        )
    )


class Answer:
    """One generation: fixed pieces, one a token, cut at max_tokens."""

    def __init__(
        self,
        request_id: str,
        model: str,
        body: Mapping[str, Any],
        pieces: Pieces,
        *,
        prompt: int,
        wanted: int | None,
        chat: bool,
    ) -> None:
        self.chat = chat
        self._model = model
        self._id = request_id
        self._prompt = prompt
        self._tool = pieces.tool if chat and body.get("tools") else None
        self._words: Sequence[str] = () if self._tool else pieces.words
        self._reasoning = pieces.reasoning if chat else ()
        self._usage_asked = bool((body.get("stream_options") or {}).get("include_usage"))
        all_choices = self._all()
        self.choices = all_choices[:wanted]
        self._cut = len(self.choices) < len(all_choices)

    def _all(self) -> list[dict[str, Any]]:
        if not self.chat:
            return [{"text": word, "stop_reason": None} for word in self._words]
        return [{"delta": delta} for delta in chat_deltas(self._reasoning, self._words, self._tool)]

    @property
    def _finish(self) -> str:
        return "length" if self._cut else "tool_calls" if self._tool else "stop"

    @property
    def _used(self) -> dict[str, Any]:
        return usage(self._prompt, len(self.choices))

    def event(self, choice: dict[str, Any]) -> dict[str, Any]:
        return chunk(self._id, self._model, choice, chat=self.chat)

    def last_events(self) -> Iterator[dict[str, Any]]:
        """The one with finish_reason, and the usage when it was asked for."""
        end: dict[str, Any] = {"delta": {"content": ""}} if self.chat else {"text": ""}
        yield self.event({**end, "finish_reason": self._finish, "stop_reason": None})
        if self._usage_asked:
            yield chunk(self._id, self._model, None, chat=self.chat, used=self._used)

    def reply(self) -> dict[str, Any]:
        """The plain reply."""
        choice: dict[str, Any] = {"finish_reason": self._finish, "stop_reason": None}
        if self.chat:
            cut = [one["delta"] for one in self.choices]
            reasoning = [delta["reasoning"] for delta in cut if "reasoning" in delta]
            words = [delta["content"] for delta in cut if "content" in delta]
            choice["message"] = chat_message(reasoning, words, self._tool)
        else:
            choice["text"] = "".join(one["text"] for one in self.choices)
        made = chunk(self._id, self._model, choice, chat=self.chat, used=self._used)
        return {**made, "object": "chat.completion" if self.chat else "text_completion"}
