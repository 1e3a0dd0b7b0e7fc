"""Whether a saved prompt really comes back: shown once for each build, model and kind of cache.

A short prompt is worked on and saved. Then the same longer prompt is asked twice: once on what is in the
slot, and once after erasing it and restoring the file. Only when both replies are the same, token by token,
and the second one found the prompt in its cache, are files of users' prompts written and given back.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from appliance.engines.slots import wire
from appliance.engines.slots.wire import SlotError

LIMIT_S = 60.0
"""For all of it: the first request waits for it, once."""
PROMPT, FURTHER, REPLY = 32, 8, 4
"""Tokens. So few since an engine on a slow device works on some two tokens per second."""
LEAST_CACHED = 20
"""Of the prompt's tokens. With a sliding window or a recurrent state, what comes back is a checkpoint some
tokens before the end.
"""
_SLOT = 0
_TEXT = (
    "The lighthouse keeper wrote down the weather every evening: the wind, the height of the waves, the "
    "colour of the sky before the sun went under, and which ships had passed on their way to the harbour."
)


@dataclass(frozen=True, slots=True)
class Proof:
    """How it went."""

    works: bool
    why: str = ""
    """Why not."""
    final: bool = True
    """Trying again would end the same way."""


@dataclass(frozen=True, slots=True)
class _Reply:
    tokens: tuple[int, ...]
    cached: int


class _NotShown(Exception):
    """What did not come back as it was."""


async def prove(client: aiohttp.ClientSession, file: Path, *, ctx: int, limit_s: float = LIMIT_S) -> Proof:
    """Uses slot 0 and leaves it empty. `file` lies in the engine's folder and is gone afterwards."""
    if ctx < PROMPT + FURTHER + REPLY + 1:
        return Proof(False, "the context is too short to try it")
    try:
        async with asyncio.timeout(limit_s):
            await _shown(client, file, limit_s)
    except TimeoutError:
        return Proof(False, f"it was not shown within {limit_s:.0f} s", final=False)
    except SlotError as error:
        return Proof(False, error.message, final=error.unsupported)
    except _NotShown as error:
        return Proof(False, str(error), final=False)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(file)
        with contextlib.suppress(SlotError):
            await wire.erase(client, _SLOT)
    return Proof(True)


async def _shown(client: aiohttp.ClientSession, file: Path, limit_s: float) -> None:
    """Raises _NotShown or SlotError."""
    prompt, longer = await _prompts(client, limit_s)
    await _ask(client, prompt, 1, limit_s)
    saved = await wire.save(client, _SLOT, file.name, limit_s)
    _require(saved >= len(prompt), f"{saved} of {len(prompt)} tokens were saved")
    _require(await asyncio.to_thread(file.is_file), "no file was written")
    wanted = await _ask(client, longer, REPLY, limit_s)
    await wire.erase(client, _SLOT, limit_s)
    restored = await wire.restore(client, _SLOT, file.name, limit_s)
    _require(restored == saved, f"{restored} of {saved} tokens came back")
    found = await _ask(client, longer, REPLY, limit_s)
    _require(found.tokens == wanted.tokens, "the reply after a restore is another one")
    _require(
        found.cached >= LEAST_CACHED,
        f"after a restore the engine used {found.cached} of {len(prompt)} tokens and worked on the rest",
    )


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise _NotShown(otherwise)


async def _prompts(client: aiohttp.ClientSession, limit_s: float) -> tuple[list[int], list[int]]:
    body = {"content": _TEXT, "add_special": True}
    document = await wire.post(client, "/tokenize", body, limit_s)
    tokens = _tokens(document, "tokens")
    _require(len(tokens) >= PROMPT + FURTHER, f"the text to try it with has {len(tokens)} tokens only")
    return list(tokens[:PROMPT]), list(tokens[: PROMPT + FURTHER])


async def _ask(client: aiohttp.ClientSession, prompt: list[int], reply: int, limit_s: float) -> _Reply:
    body = {
        "prompt": prompt, "n_predict": reply, "temperature": 0.0, "top_k": 1, "seed": 1, "ignore_eos": True,
        "cache_prompt": True, "id_slot": _SLOT, "return_tokens": True, "stream": False,
    }  # fmt: skip
    document = await wire.post(client, "/completion", body, limit_s)
    timings = document.get("timings") if isinstance(document, dict) else None
    cached = timings.get("cache_n") if isinstance(timings, dict) else None
    if not isinstance(cached, int):
        raise SlotError("The engine does not say how many tokens it had in its cache.")
    return _Reply(_tokens(document, "tokens"), cached)


def _tokens(document: Any, name: str) -> tuple[int, ...]:
    found = document.get(name) if isinstance(document, dict) else None
    if not isinstance(found, list) or not found or not all(isinstance(token, int) for token in found):
        raise SlotError("The engine answered without tokens.")
    return tuple(found)
