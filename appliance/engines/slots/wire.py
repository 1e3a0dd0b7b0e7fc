"""Slots over HTTP: how many tokens each holds, and saving, restoring and erasing them.

llama-server and xllamacpp answer `POST /slots/ID?action=...` when they were started with a folder for it. A
busy slot is not refused: the engine answers once it is free, so every call here has a limit.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import aiohttp

from appliance.errors import EngineError

LOOK_S = 5.0
"""A look waits for a batch that is being worked on."""
_MOST_SLOTS = 1_024
_BODY = 16 << 20
"""Bytes of an answer; what is longer is none."""
_SHOWN = 200
NOT_SUPPORTED = (404, 501)


class SlotError(EngineError):
    """The engine did not do it, or did not answer as it should."""

    unsupported = False
    """It never will: this build has no such thing, or was started without."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One slot as the engine tells it. None: it does not say."""

    id: int
    busy: bool
    tokens: int | None = None
    """In its cache, the reply's included. None before its first request, also after a restore."""
    task: int | None = None
    """The last request that it worked on; later ones have greater numbers."""


@dataclass(frozen=True, slots=True)
class Said:
    """What the engine is, in its own words: a file from one that said something else is not given to it."""

    build: str
    ctx: int
    slots: int


async def said(client: aiohttp.ClientSession, timeout_s: float = LOOK_S) -> Said:
    """Raises SlotError."""
    document = await _ask(client, "GET", "/props", None, timeout_s)
    try:
        ctx = int(document["default_generation_settings"]["n_ctx"])
        return Said(str(document.get("build_info", ""))[:_SHOWN], ctx, int(document["total_slots"]))
    except (KeyError, TypeError, ValueError):
        raise SlotError("/props has no context or slots.") from None


async def look(client: aiohttp.ClientSession, timeout_s: float = LOOK_S) -> tuple[Slot, ...]:
    """All slots. Raises SlotError."""
    listed = await _ask(client, "GET", "/slots", None, timeout_s)
    if not isinstance(listed, list) or not 0 < len(listed) <= _MOST_SLOTS:
        raise SlotError("/slots is no list of slots.")
    return tuple(_slot(one) for one in listed)


async def save(client: aiohttp.ClientSession, slot: int, name: str, timeout_s: float) -> int:
    """Write what a slot holds under `name` into the engine's folder; tokens written. Raises SlotError."""
    return _count(await _act(client, slot, "save", {"filename": name}, timeout_s), "n_saved")


async def restore(client: aiohttp.ClientSession, slot: int, name: str, timeout_s: float) -> int:
    """The way back; tokens that the slot holds now. What it held before is gone. Raises SlotError."""
    return _count(await _act(client, slot, "restore", {"filename": name}, timeout_s), "n_restored")


async def erase(client: aiohttp.ClientSession, slot: int, timeout_s: float = LOOK_S) -> None:
    """Empty a slot. Raises SlotError."""
    await _act(client, slot, "erase", {}, timeout_s)


async def post(client: aiohttp.ClientSession, path: str, body: dict[str, Any], timeout_s: float) -> Any:
    """One question to the engine, as a document. Raises SlotError."""
    return await _ask(client, "POST", path, body, timeout_s)


async def _act(
    client: aiohttp.ClientSession, slot: int, action: str, body: dict[str, Any], timeout_s: float
) -> Any:
    return await _ask(client, "POST", f"/slots/{slot}?action={action}", body, timeout_s)


async def _ask(
    client: aiohttp.ClientSession, method: str, path: str, body: dict[str, Any] | None, timeout_s: float
) -> Any:
    """The document of a 200. What an error says may hold words of a request, so it is not repeated."""
    where = path.partition("?")[0]
    limit = aiohttp.ClientTimeout(total=timeout_s)
    try:
        async with client.request(method, path, json=body, timeout=limit) as answer:
            if answer.status != 200:
                error = SlotError(f"{where} answered {answer.status}.")
                error.unsupported = answer.status in NOT_SUPPORTED
                raise error
            return json.loads(await _body(answer, where))
    except TimeoutError:
        raise SlotError(f"{where} did not answer within {timeout_s:.0f} s.") from None
    except (aiohttp.ClientError, OSError) as error:
        raise SlotError(f"{where} can't be asked.", cause=type(error).__name__) from None
    except (ValueError, RecursionError):
        raise SlotError(f"{where} answered no JSON.") from None


async def _body(answer: aiohttp.ClientResponse, where: str) -> bytes:
    """All of it, within bounds. Raises SlotError."""
    data = bytearray()
    async for chunk in answer.content.iter_chunked(1 << 16):
        data += chunk
        if len(data) > _BODY:
            raise SlotError(f"{where} answered too much.")
    return bytes(data)


def _slot(row: object) -> Slot:
    if not isinstance(row, dict) or not isinstance(row.get("id"), int):
        raise SlotError("/slots lists something that is no slot.")
    return Slot(
        row["id"], row.get("is_processing") is not False, _int(row, "n_prompt_tokens"), _int(row, "id_task")
    )


def _int(row: dict[str, Any], name: str) -> int | None:
    value = row.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _count(document: Any, name: str) -> int:
    found = _int(document, name) if isinstance(document, dict) else None
    if found is None:
        raise SlotError(f"The engine does not say {name}.")
    return found
