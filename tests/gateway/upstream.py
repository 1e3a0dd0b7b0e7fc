"""A scripted upstream with llama-server's wire format: role chunk, deltas, finish chunk with timings, usage
chunk without choices, [DONE], then the connection closes. A Script turns the switches."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from aiohttp import web
from multidict import CIMultiDictProxy

Breakage = Literal["die", "eof", "error", "error_done", "garbage", "false_done", "hang"]
DELTAS: tuple[dict[str, Any], ...] = (
    {"content": "Hel"},
    {"content": "lo, wörld "},
    {"content": "日本語 😀"},
)
CALLS: tuple[dict[str, Any], ...] = (
    {"tool_calls": [{"index": 0, "id": "c0", "type": "function",
                     "function": {"name": "add", "arguments": ""}}]},
    {"tool_calls": [{"index": 0, "function": {"arguments": '{"a": 1,'}}]},
    {"tool_calls": [{"index": 1, "id": "c1", "type": "function",
                     "function": {"name": "sub", "arguments": '{"b"'}}]},
    {"tool_calls": [{"index": 0, "function": {"arguments": ' "é": 2}'}}]},
    {"tool_calls": [{"index": 1, "function": {"arguments": ": 3}"}}]},
)  # fmt: skip
USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
TIMINGS = {"prompt_n": 7, "prompt_per_second": 350.0, "predicted_n": 3, "predicted_per_second": 42.5}


@dataclass
class Script:
    """What the upstream does with each request."""

    deltas: tuple[dict[str, Any], ...] = DELTAS
    finish: str = "stop"
    logprobs: bool = False
    choices: int = 1
    events: tuple[str, ...] | None = None
    """The whole stream, word for word."""
    status: int = 200
    error: dict[str, Any] | None = None
    retry_after: str | None = None
    """Header of an answer that is not 200."""
    first: asyncio.Event | None = None
    """Silent after the headers until it is set."""
    before_headers: asyncio.Event | None = None
    """Silent altogether until it is set, like a deferred request."""
    finishes: int | None = None
    """So many choices get their finish_reason, then `breakage`."""
    breaks_after: int | None = None
    """Deltas that go out before `breakage`; 0 is after the role chunk."""
    breakage: Breakage = "die"
    piece: int | None = None
    """Bytes per write."""
    eol: str = "\n"
    done: bool = True
    content_type: str = "text/event-stream"
    timings: dict[str, Any] = field(default_factory=lambda: TIMINGS)
    pings: int = 0
    """Comments before the role chunk."""
    flood: int = 0
    """Further large content chunks."""


@dataclass
class Seen:
    """One request as the upstream saw it."""

    path: str
    headers: CIMultiDictProxy[str]
    body: dict[str, Any]
    sent: bytearray = field(default_factory=bytearray)
    events: list[bytes] = field(default_factory=list)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """The other end closed the connection before the reply was complete."""
    over: asyncio.Event = field(default_factory=asyncio.Event)


class Upstream:
    """One server on a loopback port."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.script = Script()
        self.seen: list[Seen] = []
        self.arrived: asyncio.Queue[Seen] = asyncio.Queue()
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        seen = Seen(request.path, request.headers, await request.json())
        self.seen.append(seen)
        self.arrived.put_nowait(seen)
        try:
            return await self._answer(request, seen, self.script)
        except (asyncio.CancelledError, ConnectionError):
            seen.gone.set()
            raise
        finally:
            seen.over.set()

    async def _answer(self, request: web.Request, seen: Seen, script: Script) -> web.StreamResponse:
        if script.before_headers is not None:
            await script.before_headers.wait()
        if script.status != 200:
            error = script.error or {"code": script.status, "message": "no", "type": "server_error"}
            asked = {"Retry-After": script.retry_after} if script.retry_after else {}
            return web.json_response({"error": error}, status=script.status, headers=asked)
        if request.path.endswith("/embeddings"):
            return web.json_response(self.embeddings())
        chat = request.path.endswith("/chat/completions")
        if not seen.body.get("stream"):
            return web.json_response(self.plain(chat))
        response = web.StreamResponse(headers={"Content-Type": script.content_type})
        response.force_close()
        await response.prepare(request)
        n_deltas = n_finished = 0
        for kind, text in self.stream(chat):
            if kind == "delta":
                if script.breaks_after == n_deltas:
                    return await self._break(request, response, seen, script)
                n_deltas += 1
            if kind == "finish":
                if script.finishes == n_finished:
                    return await self._break(request, response, seen, script)
                n_finished += 1
            if kind == "role" and script.first is not None:
                await script.first.wait()
            await self._write(response, seen, script, text)
        return response

    async def _write(self, response: web.StreamResponse, seen: Seen, script: Script, text: str) -> None:
        raw = text.replace("\n", script.eol).encode()
        seen.events.append(raw)
        seen.sent += raw
        step = script.piece or len(raw)
        for start in range(0, len(raw), step):
            await response.write(raw[start : start + step])
            if script.piece:
                await asyncio.sleep(0)

    async def _break(
        self, request: web.Request, response: web.StreamResponse, seen: Seen, script: Script
    ) -> web.StreamResponse:
        error = script.error or {"code": 500, "message": "decode failed", "type": "server_error"}
        if script.breakage == "die":
            await asyncio.sleep(0)
            if request.transport is not None:
                request.transport.abort()
        elif script.breakage in ("error", "error_done"):
            await self._write(response, seen, script, event({"error": error}))
        elif script.breakage == "garbage":
            await self._write(response, seen, script, "data: {not json\n\n")
        elif script.breakage == "hang":
            await asyncio.Event().wait()
        if script.breakage in ("error_done", "false_done"):
            await self._write(response, seen, script, "data: [DONE]\n\n")
        return response

    def stream(self, chat: bool) -> list[tuple[str, str]]:
        """Kind and text of each event."""
        script = self.script
        if script.events is not None:
            return [("verbatim", text) for text in script.events]
        made = [("ping", ":\n\n")] * script.pings
        head = {"created": 1, "id": "chatcmpl-1", "model": self.model, "system_fingerprint": "b1"}
        head["object"] = "chat.completion.chunk" if chat else "text_completion"

        def chunk(index: int, delta: dict[str, Any], finish: str | None = None, **more: Any) -> str:
            choice: dict[str, Any] = {"finish_reason": finish, "index": index}
            choice |= {"delta": delta} if chat else {"text": delta.get("content", "")}
            if script.logprobs and delta.get("content"):
                choice["logprobs"] = logprobs(delta["content"], chat)
            return event({"choices": [choice], **head, **more})

        for index in range(script.choices):
            if chat:
                made.append(("role", chunk(index, {"role": "assistant", "content": None})))
        if not chat:
            made.append(("role", ":\n\n"))
        for delta in script.deltas:
            made += [("delta", chunk(index, delta)) for index in range(script.choices)]
        made += [("flood", chunk(0, {"content": "x" * 60_000}))] * script.flood
        for index in range(script.choices):
            last = index == script.choices - 1
            made.append(
                ("finish", chunk(index, {}, script.finish, **({"timings": script.timings} if last else {})))
            )
        made.append(("usage", event({"choices": [], **head, "usage": USAGE, "timings": script.timings})))
        if script.done:
            made.append(("done", "data: [DONE]\n\n"))
        return made

    def plain(self, chat: bool) -> dict[str, Any]:
        """The upstream's own plain reply, written down independently of the stream."""
        script = self.script
        made: dict[str, Any] = {
            "choices": [self._plain_choice(index, chat) for index in range(script.choices)],
            "created": 1,
            "id": "chatcmpl-1",
            "model": self.model,
            "system_fingerprint": "b1",
            "object": "chat.completion" if chat else "text_completion",
            "usage": USAGE,
            "timings": script.timings,
        }
        return made

    def _plain_choice(self, index: int, chat: bool) -> dict[str, Any]:
        deltas = self.script.deltas
        text = "".join(delta.get("content") or "" for delta in deltas)
        choice: dict[str, Any] = {"index": index, "finish_reason": self.script.finish}
        parts = [logprobs(delta["content"], chat) for delta in deltas if delta.get("content")]
        merged = {name: [item for part in parts for item in part[name]] for name in (parts or [{}])[0]}
        if not chat:
            return choice | {"text": text, "logprobs": merged if self.script.logprobs else None}
        message: dict[str, Any] = {"role": "assistant", "content": text}
        thought = "".join(delta.get("reasoning_content") or "" for delta in deltas)
        if thought:
            message["reasoning_content"] = thought
        if any("tool_calls" in delta for delta in deltas):
            message |= {"content": text or None, "tool_calls": FULL_CALLS}
        if self.script.logprobs:
            choice["logprobs"] = merged
        return choice | {"message": message}

    def embeddings(self) -> dict[str, Any]:
        return {
            "object": "list",
            "model": self.model,
            "data": [{"object": "embedding", "index": 0, "embedding": [0.25, -0.5]}],
            "usage": {"prompt_tokens": 4, "total_tokens": 4},
        }


FULL_CALLS = [
    {"id": "c0", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "é": 2}'}},
    {"id": "c1", "type": "function", "function": {"name": "sub", "arguments": '{"b": 3}'}},
]


def logprobs(text: str, chat: bool) -> dict[str, Any]:
    if chat:
        return {
            "content": [{"token": text, "logprob": -0.5, "bytes": list(text.encode()), "top_logprobs": []}]
        }
    return {"tokens": [text], "token_logprobs": [-0.5], "top_logprobs": [{text: -0.5}], "text_offset": [0]}


def event(data: dict[str, Any]) -> str:
    return f"data: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}\n\n"


@asynccontextmanager
async def upstream(model: str) -> AsyncIterator[Upstream]:
    """A running upstream."""
    made = Upstream(model)
    app = web.Application()
    app.router.add_post("/v1/{rest:.*}", made.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield made
    finally:
        await runner.cleanup()
