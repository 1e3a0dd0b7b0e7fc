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
    ],
)
def test_what_would_go_wrong_silently_is_refused_by_name(body: dict[str, Any], param: str) -> None:
    with pytest.raises(Rejected) as refused:
        _local(**body)
    assert refused.value.http_status == 400
    assert refused.value.reason == "reject.unsupported"
    assert getattr(refused.value, "param", None) == param


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
    assert asking.estimate_tokens({"messages": [{"role": "user", "content": "x" * 600}]}) == 100
    assert asking.estimate_tokens({"messages": [{"role": "user", "content": None}]}) is None


@pytest.mark.parametrize("word", ["Remote!", "cloud", "local,remote"])
def test_a_misspelt_wish_is_an_error_and_not_auto(word: str) -> None:
    with pytest.raises(Rejected):
        asking.wish_of(word)
