"""The form of the answer: schemas under the one name that every remote reads, and prefilled replies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def shape(made: dict[str, Any]) -> None:
    """Bring llama-server's ways to ask for a schema into `response_format` of type json_schema.

    vLLM ignores a top-level `json_schema` and the `schema` of a json_object, and would answer unconstrained.
    """
    schema = made.pop("json_schema", None)
    wanted = made.get("response_format")
    if not isinstance(wanted, Mapping):
        if schema is not None:
            made["response_format"] = _of(schema)
        return
    inner = wanted.get("json_schema")
    if isinstance(inner, Mapping) and isinstance(inner.get("schema"), Mapping):
        if not inner.get("name"):
            made["response_format"] = {**wanted, "json_schema": {"name": "schema", **_named(inner)}}
    elif isinstance(wanted.get("schema"), Mapping):
        made["response_format"] = _of(wanted["schema"])
    elif schema is not None and wanted.get("type") in ("json_object", "text"):
        made["response_format"] = _of(schema)


def _of(schema: object) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "schema", "schema": schema}}


def _named(inner: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in inner.items() if name != "name"}


def prefill(made: dict[str, Any]) -> None:
    """A last message of the assistant is continued by llama-server; vLLM has to be told."""
    messages = made.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else None
    if not isinstance(last, Mapping) or last.get("role") != "assistant" or not last.get("content"):
        return
    if last.get("tool_calls") or "continue_final_message" in made or "add_generation_prompt" in made:
        return
    made["continue_final_message"] = True
    made["add_generation_prompt"] = False
