"""llama-server's words -> the remote's, row by row."""
# ruff: noqa: E501 (a row on one line is easier to compare with its neighbours)

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.remotes import Untranslatable, rename_reasoning, translate
from tests import fake_vllm_wire as wire

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}
AS_SCHEMA = {"type": "json_schema", "json_schema": {"name": "schema", "schema": SCHEMA}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}
USER = {"role": "user", "content": "hi"}
DRAFT = {"role": "assistant", "content": "Once"}
PINNED = {"temperature": 0.8, "top_p": 0.95, "top_k": 40, "min_p": 0.05}
CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"


def chat(**fields: Any) -> dict[str, Any]:
    """What a vLLM gets for a chat request with these fields, without the model and the pinned sampling."""
    made = translate(CHAT, fields, model="Qwen/Qwen3-8B", same_tokenizer=True)
    assert made.pop("model") == "Qwen/Qwen3-8B"
    return {name: value for name, value in made.items() if PINNED.get(name) != value}


@pytest.mark.parametrize(
    ("given_fields", "expected"),
    [
        # lengths
        ({"n_predict": 64}, {"max_completion_tokens": 64}),
        ({"n_predict": -1}, {}),
        ({"n_predict": 64, "max_tokens": 32}, {"max_tokens": 32}),
        ({"n_predict": 64, "max_completion_tokens": 32}, {"max_completion_tokens": 32}),
        ({"n_predict": 64, "max_tokens": -1}, {"max_completion_tokens": 64}),
        ({"max_tokens": 0}, {}),
        ({"max_tokens": -1, "max_completion_tokens": 0}, {}),
        ({"max_tokens": 5}, {"max_tokens": 5}),
        ({"max_tokens": None}, {}),
        # structure
        ({"json_schema": SCHEMA}, {"response_format": AS_SCHEMA}),
        ({"response_format": {"type": "json_object", "schema": SCHEMA}}, {"response_format": AS_SCHEMA}),
        ({"response_format": {"type": "json_schema", "schema": SCHEMA}}, {"response_format": AS_SCHEMA}),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}},
            {"response_format": AS_SCHEMA},
        ),
        ({"response_format": AS_SCHEMA}, {"response_format": AS_SCHEMA}),
        ({"response_format": {"type": "json_object"}}, {"response_format": {"type": "json_object"}}),
        ({"response_format": {"type": "json_object"}, "json_schema": SCHEMA}, {"response_format": AS_SCHEMA}),
        ({"response_format": {"type": "text"}, "json_schema": SCHEMA}, {"response_format": AS_SCHEMA}),
        ({"response_format": {"type": "text"}}, {"response_format": {"type": "text"}}),
        ({"structured_outputs": {"regex": "a+"}}, {"structured_outputs": {"regex": "a+"}}),
        # probabilities
        ({"n_probs": 5}, {"logprobs": True, "top_logprobs": 5}),
        ({"n_probs": 0}, {}),
        ({"top_logprobs": 3}, {"logprobs": True, "top_logprobs": 3}),
        ({"logprobs": True, "top_logprobs": 20}, {"logprobs": True, "top_logprobs": 20}),
        # penalties and sampling
        ({"repeat_penalty": 1.1, "repeat_last_n": 64}, {"repetition_penalty": 1.1}),
        ({"repeat_penalty": 1.1, "repeat_last_n": 0}, {}),
        ({"repeat_penalty": 0}, {}),
        ({"repeat_penalty": 1.1, "repetition_penalty": 1.3}, {"repetition_penalty": 1.3}),
        ({"temperature": -1}, {"temperature": 0}),
        ({"temperature": 0.1, "top_p": 0.5, "top_k": 7, "min_p": 0.2},
         {"temperature": 0.1, "top_p": 0.5, "top_k": 7, "min_p": 0.2}),
        ({"top_p": 0}, {"top_p": 1e-6}),
        ({"top_p": 1.5}, {"top_p": 1.0}),
        ({"min_p": 1.5}, {"min_p": 1.0}),
        ({"top_k": -7}, {"top_k": -1}),
        ({"seed": -1}, {}),
        ({"seed": 42}, {"seed": 42}),
        # biases
        ({"logit_bias": [[15, 2.5], [16, False], ["word", 1], [17]]}, {"logit_bias": {"15": 2.5, "16": -100.0}}),
        ({"logit_bias": {"15": -200}}, {"logit_bias": {"15": -100.0}}),
        ({"logit_bias": [["word", 1]]}, {}),
        ({"logit_bias": []}, {}),
        # tools, stops, streams
        ({"tools": [], "tool_choice": "auto", "parallel_tool_calls": True}, {}),
        ({"tools": [TOOL], "tool_choice": "auto"}, {"tools": [TOOL], "tool_choice": "auto"}),
        ({"tool_choice": "none"}, {}),
        ({"stop": []}, {}),
        ({"stop": "x"}, {"stop": "x"}),
        ({"stop": list("abcd")}, {"stop": list("abcd")}),
        ({"stream_options": {"include_usage": True}}, {}),
        ({"stream": True, "stream_options": {"include_usage": True}},
         {"stream": True, "stream_options": {"include_usage": True}}),
        # reasoning
        ({"reasoning_budget_tokens": 100}, {"thinking_token_budget": 100}),
        ({"thinking_budget_tokens": 0}, {"thinking_token_budget": 0}),
        ({"reasoning_budget_tokens": -1}, {}),
        ({"reasoning_effort": "low"}, {"reasoning_effort": "low"}),
        # the last word
        ({"messages": [USER, DRAFT]},
         {"messages": [USER, DRAFT], "continue_final_message": True, "add_generation_prompt": False}),
        ({"messages": [USER]}, {"messages": [USER]}),
        ({"messages": [USER, DRAFT], "add_generation_prompt": True},
         {"messages": [USER, DRAFT], "add_generation_prompt": True}),
        ({"messages": [USER, {**DRAFT, "tool_calls": [{}]}]}, {"messages": [USER, {**DRAFT, "tool_calls": [{}]}]}),
        # llama.cpp's own affairs
        ({"cache_prompt": True, "id_slot": 1, "n_keep": 2, "n_discard": 3, "samplers": ["top_k"], "lora": []}, {}),
        ({"mirostat": 2, "mirostat_tau": 5, "dry_multiplier": 0.8, "xtc_probability": 0.5, "typical_p": 0.9}, {}),
        ({"timings_per_token": True, "return_progress": True, "reasoning_format": "auto", "grammar_lazy": True}, {}),
        ({"priority": -5}, {}),
        ({"grammar": ""}, {}),
        # both know it
        ({"chat_template_kwargs": {"enable_thinking": False}, "ignore_eos": True, "user": "u"},
         {"chat_template_kwargs": {"enable_thinking": False}, "ignore_eos": True, "user": "u"}),
    ],
)  # fmt: skip
def test_a_chat_request_for_a_vllm(given_fields: dict[str, Any], expected: dict[str, Any]) -> None:
    before = copy.deepcopy(given_fields)
    made = chat(**given_fields)
    assert made == expected
    assert given_fields == before
    wire.check({**made, "stream": made.get("stream")}, chat=True)


def test_the_sampling_of_llama_server_is_pinned() -> None:
    made = translate(CHAT, {"messages": [USER], "top_k": 0}, model="m")
    assert {name: made[name] for name in PINNED} == PINNED | {"top_k": 0}


@pytest.mark.parametrize(
    ("given_fields", "field"),
    [
        ({"grammar": "root ::= [a-z]+"}, "grammar"),
        ({"stop": list("abcde")}, "stop"),
        ({"n_probs": 21}, "n_probs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"temperature": 2.5}, "temperature"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"frequency_penalty": -3}, "frequency_penalty"),
    ],
)
@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_what_cannot_be_said_is_refused_by_name(given_fields: dict[str, Any], field: str, path: str) -> None:
    if path == TEXT and "top_logprobs" in given_fields:
        given_fields = {"logprobs": 21}
        field = "logprobs"
    with pytest.raises(Untranslatable) as caught:
        translate(path, given_fields, model="m")
    assert caught.value.field == field
    assert (caught.value.reason, caught.value.http_status) == ("reject.unsupported", 400)
    assert field in caught.value.message


@pytest.mark.parametrize(
    ("given_fields", "limit"),
    [({}, None), ({"n_predict": 9}, 9), ({"max_tokens": 3}, 3), ({"max_completion_tokens": 4}, 4), ({"n_predict": -1}, None)],
)  # fmt: skip
def test_a_text_completion_never_gets_the_remotes_limit_of_16(
    given_fields: dict[str, Any], limit: int | None
) -> None:
    made = translate(TEXT, {"prompt": "x", **given_fields}, model="m")
    assert made["max_tokens"] == limit
    assert "max_tokens" in made
    assert "max_completion_tokens" not in made


def test_probabilities_of_a_text_completion_are_a_number() -> None:
    made = translate(TEXT, {"prompt": "x", "n_probs": 3}, model="m")
    assert made["logprobs"] == 3
    assert "top_logprobs" not in made


def test_biases_are_left_out_for_another_tokenizer() -> None:
    assert "logit_bias" not in translate(CHAT, {"logit_bias": {"15": 5}}, model="m")


def test_another_supplier_gets_only_what_openai_knows() -> None:
    body = {
        "messages": [USER, DRAFT], "top_k": 5, "min_p": 0.1, "repeat_penalty": 1.2, "chat_template_kwargs": {},
        "n_predict": 8, "json_schema": SCHEMA, "user": "u", "stream": True, "reasoning_budget_tokens": 5,
    }  # fmt: skip
    assert translate(CHAT, body, model="gpt-4o-mini", kind="openai") == {
        "model": "gpt-4o-mini", "messages": [USER, DRAFT], "max_completion_tokens": 8,
        "response_format": AS_SCHEMA, "user": "u", "stream": True,
    }  # fmt: skip


def test_another_supplier_cannot_honour_vllms_structured_outputs() -> None:
    with pytest.raises(Untranslatable) as caught:
        translate(CHAT, {"structured_outputs": {"choice": ["a"]}}, model="m", kind="openai")
    assert caught.value.field == "structured_outputs"


def test_an_embedding_request_gets_the_model_and_no_sampling() -> None:
    body = {"model": "local", "input": ["a"], "encoding_format": "float", "cache_prompt": True}
    made = translate("/v1/embeddings", body, model="far")
    assert made == {"model": "far", "input": ["a"], "encoding_format": "float"}


NUMBER = st.none() | st.integers(-5, 30) | st.floats(-5, 30)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            **dict.fromkeys(("temperature", "top_p", "min_p", "repeat_penalty", "presence_penalty"), NUMBER),
            **dict.fromkeys(("top_k", "max_tokens", "n_predict", "n_probs", "seed"), st.none() | st.integers(-5, 30)),
            "stop": st.lists(st.text(max_size=2), max_size=6),
            "tools": st.just([]) | st.just([TOOL]),
            "tool_choice": st.sampled_from((None, "auto", "none")),
            "stream_options": st.just({"include_usage": True}),
            "response_format": st.sampled_from((None, {"type": "json_schema", "schema": SCHEMA})),
            "messages": st.lists(st.sampled_from((USER, DRAFT)), min_size=1, max_size=3),
        },
    ),
    st.booleans(),
)  # fmt: skip
def test_whatever_comes_out_is_accepted_by_the_remote(body: dict[str, Any], is_chat: bool) -> None:
    try:
        made = translate(CHAT if is_chat else TEXT, body, model="m", same_tokenizer=True)
    except Untranslatable as caught:
        refused = caught.field
    else:
        wire.check(made, chat=is_chat)
        return
    assert refused in body


# --- and back


@pytest.mark.parametrize("part", ["delta", "message"])
def test_reasoning_gets_its_other_name(part: str) -> None:
    chunk = {"id": "x", "choices": [{"index": 0, part: {"reasoning": "hm", "content": None}}]}
    before = copy.deepcopy(chunk)
    inner = rename_reasoning(chunk)["choices"][0][part]
    assert inner == {"reasoning": "hm", "reasoning_content": "hm", "content": None}
    assert chunk == before


@pytest.mark.parametrize(
    "chunk",
    [
        {"choices": [{"delta": {"content": "a"}}]},
        {"choices": [{"delta": {"reasoning": None, "content": "a"}}]},
        {"choices": [{"delta": {"reasoning": "a", "reasoning_content": "b"}}]},
        {"choices": []},
        {"choices": ["strange"]},
        {"error": {"message": "x"}},
    ],
)
def test_other_chunks_stay_the_same_object(chunk: dict[str, Any]) -> None:
    assert rename_reasoning(chunk) is chunk
