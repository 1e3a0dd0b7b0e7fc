"""A server with slots on llama-server's wire, for what no real engine does on demand: it errs, lies, hangs.

Its "KV cache" of a slot is the list of its tokens; a saved file is that list as JSON, padded to `size` bytes.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from appliance.engines import Endpoint


@dataclass
class FakeSlots:
    """What it holds, and how it misbehaves: a fault for each action (tokenize, completion, save, ...)."""

    folder: Path
    slots: int = 2
    ctx: int = 4096
    build: str = "b1-fake"
    size: int = 10_000
    """Bytes of each file that it writes."""
    faults: dict[str, str] = field(default_factory=dict)
    held: list[list[int]] = field(default_factory=list)
    tasks: list[int | None] = field(default_factory=list)
    busy: set[int] = field(default_factory=set)
    calls: list[str] = field(default_factory=list)
    """`save 0`, `restore 1`, ... in order."""
    asked: int = 0

    def __post_init__(self) -> None:
        self.held = [[] for _ in range(self.slots)]
        self.tasks = [None for _ in range(self.slots)]

    def used(self, slot: int, tokens: int, *, first: int = 1) -> None:
        """As if a request had left so many tokens there."""
        self.asked += 1
        self.held[slot], self.tasks[slot] = list(range(first, first + tokens)), self.asked

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Endpoint]:
        """Where it listens, as long as the block runs."""
        app = web.Application()
        app.router.add_get("/props", self._props)
        app.router.add_get("/slots", self._rows)
        app.router.add_post("/tokenize", self._tokenize)
        app.router.add_post("/completion", self._completion)
        app.router.add_post("/slots/{id}", self._act)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        with tempfile.TemporaryDirectory(prefix="appl") as home:
            socket = f"{home}/engine.sock"
            await web.UnixSite(runner, socket).start()
            try:
                yield Endpoint("http://engine", socket, "key", self.asked + 1)
            finally:
                await runner.cleanup()

    async def _props(self, request: web.Request) -> web.StreamResponse:
        if answer := await self._fault("props", request):
            return answer
        settings = {"n_ctx": self.ctx}
        return web.json_response(
            {"default_generation_settings": settings, "total_slots": self.slots, "build_info": self.build}
        )

    async def _rows(self, request: web.Request) -> web.StreamResponse:
        if answer := await self._fault("slots", request):
            return answer
        rows = []
        for number, tokens in enumerate(self.held):
            row: dict[str, Any] = {"id": number, "n_ctx": self.ctx, "is_processing": number in self.busy}
            if self.tasks[number] is not None:
                row |= {"id_task": self.tasks[number], "n_prompt_tokens": len(tokens)}
            rows.append(row)
        return web.json_response(rows)

    async def _tokenize(self, request: web.Request) -> web.StreamResponse:
        if answer := await self._fault("tokenize", request):
            return answer
        text = (await request.json())["content"]
        return web.json_response({"tokens": [len(word) * 7 + at for at, word in enumerate(text.split())] * 2})

    async def _completion(self, request: web.Request) -> web.StreamResponse:
        if answer := await self._fault("completion", request):
            return answer
        body = await request.json()
        prompt, slot, n = body["prompt"], body["id_slot"], body["n_predict"]
        cached = _common(self.held[slot], prompt)
        reply = [(sum(prompt) + at) % 1_000 for at in range(n)]
        if self.faults.get("completion") == "other words" and "restore 0" in self.calls:
            reply[-1] += 1
        self.asked += 1
        self.held[slot], self.tasks[slot] = prompt + reply[:-1], self.asked
        if self.faults.get("restore") == "forgets" and "restore 0" in self.calls:
            cached = 0
        return web.json_response({"tokens": reply, "id_slot": slot, "timings": {"cache_n": cached}})

    async def _act(self, request: web.Request) -> web.StreamResponse:
        slot, action = int(request.match_info["id"]), request.query["action"]
        self.calls.append(f"{action} {slot}")
        if action == "save" and self.faults.get("save") == "half, then nothing":
            (self.folder / (await request.json())["filename"]).write_bytes(b"half")
            await asyncio.sleep(600)
        if answer := await self._fault(action, request):
            return answer
        if action == "erase":
            self.held[slot] = []
            return web.json_response({"id_slot": slot, "n_erased": 0})
        path = self.folder / (await request.json())["filename"]
        if action == "save":
            path.write_text(json.dumps(self.held[slot]).ljust(self.size))
            n = len(self.held[slot]) - (self.faults.get("save") == "fewer")
            return web.json_response({"id_slot": slot, "filename": path.name, "n_saved": n})
        self.held[slot] = json.loads(path.read_text())
        return web.json_response({"id_slot": slot, "filename": path.name, "n_restored": len(self.held[slot])})

    async def _fault(self, action: str, request: web.Request) -> web.StreamResponse | None:
        """500 501 garbage hangs dies; None: it does what it should."""
        fault = self.faults.get(action)
        if fault in ("500", "501"):
            kind = {"500": "server_error", "501": "not_supported_error"}[fault]
            error = {"code": int(fault), "message": "said of a secret prompt", "type": kind}
            return web.json_response({"error": error}, status=int(fault))
        if fault == "garbage":
            return web.Response(body=b"\x00\xff{", content_type="application/json")
        if fault == "hangs":
            await asyncio.sleep(600)
        if fault == "dies":
            assert request.transport is not None
            request.transport.abort()
        return None


def _common(one: list[int], other: list[int]) -> int:
    return next(
        (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
