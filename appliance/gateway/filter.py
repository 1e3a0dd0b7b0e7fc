"""Request fields that an engine would take silently wrong: dropped, translated, or refused with a clear 400.

llama-server ignores unknown fields and reads some known ones in a way that nobody expects; vLLM ignores what
it does not know, too. `common` holds for both sides, `for_local` prepares the body for the local engine; the
remote's own words are the business of appliance.remotes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from appliance.gateway.badfield import refuse as _refuse
from appliance.gateway.checks import check_fields, check_prompt, check_texts
from appliance.gateway.messages import check_messages, check_tools
from appliance.routing import Kind

_NEVER = ("n_keep", "n_discard", "sse_ping_interval", "id_slot", "lora")
"""Dropped for every side: n_discard is CVE-2026-21869; the others would reach into the engine's own affairs
(a slot, pings that keep the connection, adapters)."""

_REMOTE_ONLY = (
    "priority", "min_tokens", "stop_token_ids", "bad_words", "allowed_token_ids", "prompt_logprobs",
    "cache_salt", "truncate_prompt_tokens", "vllm_xargs", "include_reasoning", "skip_special_tokens",
    "mm_processor_kwargs", "media_io_kwargs",
)  # fmt: skip
"""vLLM's; llama-server would ignore them."""

_GUIDED = ("guided_json", "guided_regex", "guided_choice", "guided_grammar", "guided_decoding_backend")
"""Removed from vLLM, unknown to llama-server: both answer unconstrained."""

LOCAL_FIELDS = (
    "grammar", "grammar_lazy", "grammar_triggers", "mirostat", "mirostat_tau", "mirostat_eta", "typical_p",
    "dynatemp_range", "dynatemp_exponent", "dry_multiplier", "xtc_probability", "top_n_sigma", "samplers",
)  # fmt: skip
"""llama.cpp's fields that shape the answer and that a remote would silently ignore."""


def local_fields(body: Mapping[str, Any]) -> tuple[str, ...]:
    """Which of LOCAL_FIELDS the request uses (null is the same as absent)."""
    return tuple(name for name in LOCAL_FIELDS if body.get(name) is not None)


def common(body: Mapping[str, Any], kind: Kind, use: Collection[str] = ()) -> dict[str, Any]:
    """The body without what no side may get; `use` is what the model is for.

    Raises BadField (400) for what nobody can answer rightly.
    """
    made = {name: value for name, value in body.items() if name not in _NEVER}
    check_texts(made)
    for name in _GUIDED:
        if made.get(name) is not None:
            _refuse(f"{name} is no longer understood by any engine: the answer would be unconstrained.",
                    name, "Use response_format with a json_schema.")  # fmt: skip
    if kind == "chat":
        check_messages(made.get("messages"), use)
        check_tools(made)
    else:
        _check_input(made, kind)
    check_fields(made, kind)
    _fix_response_format(made)
    return made


def _check_input(made: Mapping[str, Any], kind: Kind) -> None:
    name = "prompt" if kind == "completion" else "input"
    if kind == "embedding" and made.get("input") is None and made.get("content") is not None:
        name = "content"
    if made.get(name) is None:
        _refuse(f"`{name}` is missing.", name)
    check_prompt(made[name], name)


def for_local(body: Mapping[str, Any], kind: Kind, *, model: str, slots: int | None) -> dict[str, Any]:
    """The body for the local engine. Raises Rejected (400) for what only a remote could honour."""
    made = {name: value for name, value in body.items() if name not in _REMOTE_ONLY}
    made["model"] = model
    if kind == "embedding":
        return made
    _structured(made)
    if isinstance(made.get("repetition_penalty"), (int, float)):
        made.setdefault("repeat_penalty", made.pop("repetition_penalty"))
    if isinstance(made.get("dry_allowed_length"), (int, float)) and made["dry_allowed_length"] < 0:
        _refuse("`dry_allowed_length` must not be negative.", "dry_allowed_length")
    choices = made.get("n")
    if slots is not None and isinstance(choices, int) and choices > slots:
        _refuse(f"`n` = {choices}, but the engine has {slots} slots.", "n")
    if made.get("tools"):
        _check_tools(made)
    return made


def _structured(made: dict[str, Any]) -> None:
    wanted = made.pop("structured_outputs", None)
    if not isinstance(wanted, Mapping):
        return
    if wanted.get("json") is None:
        _refuse("The local engine knows no structured_outputs but `json`.", "structured_outputs",
                "Use response_format, or route this request to a remote.")  # fmt: skip
    made["response_format"] = {
        "type": "json_schema",
        "json_schema": {"name": "schema", "schema": wanted["json"]},
    }


def _check_tools(made: dict[str, Any]) -> None:
    if made.get("grammar"):
        _refuse("`grammar` and `tools` can't be used together.", "grammar")
    if made.get("logprobs"):
        _refuse("The local engine gives no `logprobs` together with `tools`.", "logprobs")
    choice = made.get("tool_choice")
    if not isinstance(choice, Mapping):
        return
    # llama-server takes the object form for "auto", with a warning in its log only. One tool that must be
    # called means the same.
    function = choice.get("function")
    name = function.get("name") if isinstance(function, Mapping) else None
    named = [tool for tool in made["tools"] if _tool_name(tool) == name]
    if name is None or not named:
        _refuse("`tool_choice` names no tool of `tools`.", "tool_choice")
    made["tools"], made["tool_choice"] = named[:1], "required"


def _tool_name(tool: object) -> object:
    function = tool.get("function") if isinstance(tool, Mapping) else None
    return function.get("name") if isinstance(function, Mapping) else None


def _fix_response_format(made: dict[str, Any]) -> None:
    """`{"type": "json_schema", "schema": S}` is not read by the engines, although a README shows it."""
    wanted = made.get("response_format")
    if not isinstance(wanted, Mapping) or wanted.get("type") != "json_schema" or wanted.get("json_schema"):
        return
    if not isinstance(wanted.get("schema"), Mapping):
        _refuse("`response_format` of type json_schema needs json_schema.schema.", "response_format")
    made["response_format"] = {
        "type": "json_schema",
        "json_schema": {"name": "schema", "schema": wanted["schema"]},
    }
