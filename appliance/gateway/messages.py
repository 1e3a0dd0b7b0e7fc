"""The messages and tools of a chat, checked before any side sees them.

An engine answers much of what is wrong here with a 500 that looks like a failure of its own.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from appliance.gateway.badfield import refuse

_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_TEXTS = ("text", "refusal")
_LINKS = ("image_url", "video_url", "audio_url")
_MEDIA = (*_LINKS, "input_audio")
_CHOICES = ("none", "auto", "required")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def check_messages(messages: object, use: Collection[str]) -> None:
    """Raises BadField. `use`: what the catalog says the model is for."""
    if not isinstance(messages, list) or not messages:
        refuse("`messages` must be a list with at least one message.", "messages")
    for n, message in enumerate(messages):
        _check_message(message, f"messages[{n}]", use)
    if [message.get("role") for message in messages[-2:]] == ["assistant", "assistant"]:
        refuse("The last two messages are both from the assistant.", "messages")


def check_tools(body: Mapping[str, Any]) -> None:
    """`tools` and `tool_choice`. Raises BadField."""
    tools, choice = body.get("tools"), body.get("tool_choice")
    if tools is not None and not isinstance(tools, list):
        refuse("`tools` must be a list.", "tools")
    for n, tool in enumerate(tools or ()):
        _check_tool(tool, f"tools[{n}]")
    if choice is None or (isinstance(choice, str) and choice in _CHOICES[:2]):
        return
    function = choice.get("function") if isinstance(choice, Mapping) else None
    if choice != "required" and not (isinstance(function, Mapping) and isinstance(function.get("name"), str)):
        refuse("`tool_choice` must be none, auto, required, or an object with function.name.", "tool_choice")
    if not tools:
        refuse("`tool_choice` asks for a call, but there are no `tools`.", "tool_choice")


def _check_message(message: object, at: str, use: Collection[str]) -> None:
    if not isinstance(message, Mapping):
        refuse("Each message must be an object.", "messages")
    if message.get("role") not in _ROLES:
        refuse(f"`{at}.role` must be one of {', '.join(_ROLES)}.", "messages")
    content = message.get("content")
    if isinstance(content, list):
        for n, part in enumerate(content):
            _check_part(part, f"{at}.content[{n}]", use)
    elif content is not None and not isinstance(content, str):
        refuse(f"`{at}.content` must be a text, null, or a list of parts.", "messages")
    for name in ("name", "tool_call_id"):
        if message.get(name) is not None and not isinstance(message[name], str):
            refuse(f"`{at}.{name}` must be a text.", "messages")
    calls = message.get("tool_calls")
    if calls is not None and not isinstance(calls, list):
        refuse(f"`{at}.tool_calls` must be a list.", "messages")
    for n, call in enumerate(calls or ()):
        _check_call(call, f"{at}.tool_calls[{n}]")


def _check_part(part: object, at: str, use: Collection[str]) -> None:
    if not isinstance(part, Mapping):
        refuse("Each content part must be an object.", "messages")
    for name in _LINKS:
        link = part.get(name)
        url = link.get("url") if isinstance(link, Mapping) else link
        if url is not None and not str(url).lower().startswith("data:"):
            refuse(f"`{name}` must be a data: URL; the appliance fetches nothing from the network.",
                   "messages")  # fmt: skip
    kind = part.get("type")
    if kind in _TEXTS:
        if not isinstance(part.get(kind), str):
            refuse(f"`{at}.{kind}` must be a text.", "messages")
        return
    if kind not in _MEDIA:
        refuse(f"`{at}.type` must be one of {', '.join((*_TEXTS, *_MEDIA))}.", "messages")
    if "vision" not in use:
        refuse(f"The model reads text only, and `{at}` is of type {kind}.", "messages",
               "Ask a model whose use is vision (`appliance models list`).")  # fmt: skip
    if not isinstance(part.get(kind), Mapping if kind == "input_audio" else (Mapping, str)):
        refuse(f"`{at}.{kind}` is missing or no object.", "messages")


def _check_call(call: object, at: str) -> None:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(call, Mapping) or not isinstance(function, Mapping):
        refuse(f"`{at}` must be an object with a `function`.", "messages")
    if call.get("type", "function") != "function":
        refuse(f"`{at}.type` must be function.", "messages")
    if not isinstance(function.get("name"), str):
        refuse(f"`{at}.function.name` must be a text.", "messages")
    if not isinstance(function.get("arguments"), (str, Mapping)):
        refuse(f"`{at}.function.arguments` must be a text.", "messages")


def _check_tool(tool: object, at: str) -> None:
    if not isinstance(tool, Mapping) or tool.get("type") != "function":
        refuse(f"`{at}` must be an object of type function.", "tools")
    function = tool.get("function")
    if not isinstance(function, Mapping):
        refuse(f"`{at}.function` must be an object.", "tools")
    name = function.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        refuse(f"`{at}.function.name` must have 1 to 64 letters, digits, `_`, `.` or `-`.", "tools")
    if function.get("parameters") is not None and not isinstance(function["parameters"], Mapping):
        refuse(f"`{at}.function.parameters` must be an object.", "tools")
    if function.get("description") is not None and not isinstance(function["description"], str):
        refuse(f"`{at}.function.description` must be a text.", "tools")
