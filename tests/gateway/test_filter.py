"""Fields that an engine takes silently wrong never reach it."""

from __future__ import annotations

from typing import Any

import pytest

from appliance.errors import Rejected
from appliance.gateway import ask as asking
from appliance.gateway.filter import common, for_local, local_fields
from appliance.routing import Kind

_SAYS = [{"role": "user", "content": "hi"}]
_TOOLS = [
    {"type": "function", "function": {"name": "add", "parameters": {}}},
    {"type": "function", "function": {"name": "sub", "parameters": {}}},
]
_IMAGE = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://10.0.0.1/x.png"}}]}]


def _local(kind: Kind = "chat", **body: Any) -> dict[str, Any]:
    said = {"messages": _SAYS} if kind == "chat" else {}
    return for_local(common({**said, **body}, kind), kind, model="tiny:Q4_1", slots=2)


@pytest.mark.parametrize(
    "name", ["n_keep", "n_discard", "sse_ping_interval", "id_slot", "priority", "min_tokens"]
)
def test_fields_that_reach_into_the_engine_are_dropped(name: str) -> None:
    body: dict[str, Any] = {name: 1}
    assert name not in _local(**body)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": _IMAGE}, "messages"),
        ({"messages": [{"role": "user", "content": [{"image_url": "file:///etc/passwd"}]}]}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        (
            {"messages": [{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}]},
            "messages",
        ),
        ({"guided_json": {}}, "guided_json"),
        ({"stream": "yes"}, "stream"),
        ({"n": 0}, "n"),
        ({"n": 3}, "n"),
        ({"n": True}, "n"),
        ({"dry_allowed_length": -1}, "dry_allowed_length"),
        ({"tools": _TOOLS, "grammar": "root ::= x"}, "grammar"),
        ({"tools": _TOOLS, "logprobs": True}, "logprobs"),
        ({"tools": _TOOLS, "tool_choice": {"function": {"name": "mul"}}}, "tool_choice"),
        ({"structured_outputs": {"regex": "a+"}}, "structured_outputs"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"response_format": "json"}, "response_format"),
        ({"response_format": {"type": "yaml"}}, "response_format"),
        ({"response_format": {"type": []}}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": "x"}}, "response_format"),
        ({"tools": "bad"}, "tools"),
        ({"tools": [{}]}, "tools"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools"),
        ({"tools": [{"type": "function", "function": {"name": "a" * 65}}]}, "tools"),
        ({"tools": [{"type": "function", "function": {"name": "a", "parameters": []}}]}, "tools"),
        ({"tools": _TOOLS, "tool_choice": "always"}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"stop": 5}, "stop"),
        ({"stop": ["a", 5]}, "stop"),
        ({"logit_bias": "x"}, "logit_bias"),
        ({"logit_bias": {"5": "x"}}, "logit_bias"),
        ({"stream_options": []}, "stream_options"),
        ({"stream_options": {"include_usage": "yes"}}, "stream_options"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 1.5}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 2**40}, "max_tokens"),
        ({"max_completion_tokens": "x"}, "max_completion_tokens"),
        ({"top_logprobs": 50_000}, "top_logprobs"),
        ({"logprobs": 3}, "logprobs"),
        ({"user": "\ud800"}, "user"),
    ],
)
def test_what_would_go_wrong_silently_is_refused_by_name(body: dict[str, Any], param: str) -> None:
    with pytest.raises(Rejected) as refused:
        _local(**body)
    assert refused.value.http_status == 400
    assert refused.value.reason == "reject.unsupported"
    assert getattr(refused.value, "param", None) == param


def _call(**function: Any) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": function}]}


@pytest.mark.parametrize("message", [
    {"role": 5, "content": "x"},
    {"role": [], "content": "x"},
    {"role": "robot", "content": "x"},
    {"content": "x"},
    {"role": "user", "content": 5},
    {"role": "user", "content": {"text": "x"}},
    {"role": "user", "content": "\ud800"},
    {"role": "user", "content": [{"type": "text"}]},
    {"role": "user", "content": [{"type": "nonsense", "text": "x"}]},
    {"role": "user", "content": [{"type": [], "text": "x"}]},
    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]},
    {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}]},
    {"role": "assistant", "tool_calls": "bad"},
    {"role": "assistant", "tool_calls": [{}]},
    {"role": "tool", "content": "x", "tool_call_id": 5},
    _call(name=5, arguments="{}"),
    _call(name="add"),
], ids=str)  # fmt: skip
def test_a_message_that_no_engine_reads_is_refused(message: dict[str, Any]) -> None:
    with pytest.raises(Rejected) as refused:
        _local(messages=[message, {"role": "user", "content": "x"}])
    assert (refused.value.http_status, getattr(refused.value, "param", None)) == (400, "messages")


@pytest.mark.parametrize("prompt", [5, [], {}, [[]], [[1], ["a"]], [-1], [True], [None], ["a", {}]], ids=str)
def test_a_prompt_that_no_engine_reads_is_refused(prompt: Any) -> None:
    for kind, name in (("completion", "prompt"), ("embedding", "input")):
        with pytest.raises(Rejected) as refused:
            common({name: prompt}, kind)  # type: ignore[arg-type]
        assert getattr(refused.value, "param", None) == name


def test_what_openai_allows_goes_through_unchanged() -> None:
    body: dict[str, Any] = {
        "messages": [
            {"role": "developer", "content": [{"type": "text", "text": "be kind 😀"}]},
            {"role": "user", "name": "ann", "content": "add 1 and 2"},
            _call(name="add", arguments='{"a": 1}'),
            {"role": "tool", "tool_call_id": "c", "content": "3"},
            {"role": "user", "content": "and?"},
        ],
        "tools": [{"type": "function", "function": {"name": "ns.add-1", "description": "d", "strict": True}}],
        "tool_choice": "auto", "stop": ["a", "b"], "logit_bias": {"5": -100}, "seed": 2**63, "top_p": 1,
        "temperature": 2, "max_tokens": 1, "stream_options": {"include_usage": True}, "metadata": {"a": "b"},
        "response_format": {"type": "json_object"}, "parallel_tool_calls": False, "service_tier": "auto",
    }  # fmt: skip
    assert common(body, "chat") == body
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
    seen = {"messages": [{"role": "user", "content": [image]}]}
    assert common(seen, "chat", ("chat", "vision")) == seen


def test_a_named_tool_becomes_the_only_one_and_required() -> None:
    made = _local(tools=_TOOLS, tool_choice={"type": "function", "function": {"name": "sub"}})
    assert made["tools"] == [_TOOLS[1]]
    assert made["tool_choice"] == "required"


def test_a_schema_at_the_wrong_place_is_moved_where_engines_read_it() -> None:
    schema = {"type": "object"}
    made = _local(response_format={"type": "json_schema", "schema": schema})
    assert made["response_format"]["json_schema"]["schema"] == schema
    made = _local(structured_outputs={"json": schema})
    assert made["response_format"]["json_schema"]["schema"] == schema
    assert "structured_outputs" not in made


def test_a_null_field_is_like_an_absent_one() -> None:
    assert local_fields({"grammar": None}) == ()
    assert local_fields({"grammar": "root ::= x"}) == ("grammar",)
    assert _local(stream=None, n=None)["model"] == "tiny:Q4_1"


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"[]", b'"x"', b'{"a": NaN}', b'{"a": Infinity}', b"\xff\xfe", b"[" * 100_000]
)
def test_a_body_that_is_no_json_object_is_a_400(raw: bytes) -> None:
    with pytest.raises(Rejected) as refused:
        asking.parse(raw)
    assert refused.value.http_status == 400


def test_every_generation_goes_up_as_a_stream_with_usage() -> None:
    made = asking.as_stream({"stream": False, "stream_options": {"x": 1}})
    assert made == {"stream": True, "stream_options": {"x": 1, "include_usage": True}}


def test_the_prompt_is_estimated_from_below_and_token_ids_are_counted() -> None:
    assert asking.estimate_tokens({"prompt": [1, 2, 3]}) == 3
    assert asking.estimate_tokens({"prompt": [[1, 2, 3], [1]]}) == 3, "each prompt has a slot of its own"
    assert asking.estimate_tokens({"prompt": ["x" * 600, "y" * 60]}) == 100
    assert asking.estimate_tokens({"messages": [{"role": "user", "content": "x" * 600}]}) == 100
    assert asking.estimate_tokens({"messages": [{"role": "user", "content": None}]}) is None


@pytest.mark.parametrize("word", ["Remote!", "cloud", "local,remote"])
def test_a_misspelt_wish_is_an_error_and_not_auto(word: str) -> None:
    with pytest.raises(Rejected):
        asking.wish_of(word)
