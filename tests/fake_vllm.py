"""A vLLM server without a model: the real wire, fixed words, and faults as switches.

    async with FakeVllm(key="secret") as remote:
        remote.faults.first_token = asyncio.Event()      # generation waits until the test sets it
        ...
        assert remote.generations == []                  # nothing left this machine

It listens on 127.0.0.1 only. It follows vLLM 0.33: the headers of a stream leave at once and the first chunk
with the first token; a mid-stream error is followed by [DONE]; only /v1 is behind the key, whose 401 has a
string as `error`; unknown fields are ignored.

`python -m tests.fake_vllm --port N --key K` serves it for another process; the pages under /_fake then show
what arrived (GET /_fake/requests) and set the simple faults (POST /_fake/faults).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
import struct
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from tests import fake_vllm_wire as wire

DEFAULT_MODEL = "Qwen/Qwen3-8B"
DEFAULT_WORDS = ("Hello", " from", " the", " remote", ".")


@dataclass(slots=True)
class Faults:
    """Switches that a test turns while the server runs. Counts are tokens (chunks after the role's)."""

    status: int | None = None
    """Generation answers with this status (503: its overload body) before any stream."""
    retry_after: str | None = None
    """With `status`: the header, as a proxy in front of vLLM sends it."""
    models_status: int | None = None
    """GET /v1/models answers with this status."""
    first_token: asyncio.Event | None = None
    """The first chunk waits for it; the headers of a stream have left by then."""
    stall_after: int | None = None
    """After so many tokens nothing more comes until `release` is set."""
    release: asyncio.Event = field(default_factory=asyncio.Event)
    reset_after: int | None = None
    """After so many tokens the connection is reset (RST)."""
    reset_before_headers: bool = False
    """The connection is reset before any byte."""
    error_after: int | None = None
    """After so many tokens an error event comes, followed by [DONE]."""
    end_after: int | None = None
    """After so many tokens the stream ends cleanly, without finish_reason and without [DONE]."""
    garbage: bool = False
    """The stream is not SSE with JSON."""
    metrics_missing: bool = False


@dataclass(frozen=True, slots=True)
class Received:
    """One request as it arrived."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any
    """Parsed JSON, or None."""


class FakeVllm:
    """An async context manager; `url` is the address for `[[remotes]]`."""

    def __init__(
        self,
        *,
        models: Sequence[str] = (DEFAULT_MODEL,),
        max_model_len: int = 4096,
        key: str | None = None,
        words: Sequence[str] = DEFAULT_WORDS,
        reasoning: Sequence[str] = (),
        tool: tuple[str, Sequence[str]] | None = None,
        version: str = "0.33.0",
        slots: int | None = None,
        pace_s: float = 0.0,
        port: int = 0,
    ) -> None:
        self.models = tuple(models)
        """--served-model-name: all are accepted, the first is echoed."""
        self.max_model_len = max_model_len
        self.key = key
        self.pieces = wire.Pieces(tuple(words), tuple(reasoning), tool)
        """What it says; may be changed between requests."""
        self.version = version
        self.pace_s = pace_s
        """Seconds per token; for demonstrations. Tests use `faults.first_token` instead."""
        self.faults = Faults()
        self.requests: list[Received] = []
        self.aborted = 0
        """Generations whose client went away before the end."""
        self.finished = 0
        self.running = 0
        self.waiting = 0
        self._slots = asyncio.Semaphore(slots) if slots else None
        self._port = port
        self._active: set[object] = set()
        """The connections whose request is being answered."""
        self._changed = asyncio.Condition()
        self._runner: web.AppRunner | None = None
        self._site: web.SockSite | None = None

    # --- what a test asks

    @property
    def url(self) -> str:
        """With /v1."""
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def port(self) -> int:
        """Known from the first listen on; it stays the same through `refuse` and `listen`."""
        return self._port

    @property
    def generations(self) -> list[Received]:
        """The requests that carried a prompt: what has left the machine."""
        return [one for one in self.requests if one.method == "POST" and one.path.startswith("/v1/")]

    def asked(self, path: str) -> list[Received]:
        """The requests to one path."""
        return [one for one in self.requests if one.path == path]

    async def until(self, *, generations: int = 0, aborted: int = 0, requests: int = 0) -> None:
        """Wait until so many have been counted since the start."""
        async with self._changed:
            await self._changed.wait_for(
                lambda: (
                    len(self.generations) >= generations
                    and self.aborted >= aborted
                    and len(self.requests) >= requests
                )
            )

    async def refuse(self) -> None:
        """Stop listening and close what is idle: connections are refused, as while a vLLM loads."""
        if self._site is not None and self._runner is not None:
            await self._site.stop()
            self._site = None
            for connection in self._runner.server.connections if self._runner.server else ():
                if connection not in self._active:
                    connection.force_close()

    async def listen(self) -> None:
        """Listen (again), on the same port."""
        if self._runner is None or self._site is not None:
            return
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self._port))
        self._port = listener.getsockname()[1]
        self._site = web.SockSite(self._runner, listener)
        await self._site.start()

    async def __aenter__(self) -> Self:
        app = web.Application(middlewares=[self._record, self._guard])
        app.add_routes(
            [
                web.get("/v1/models", self._models),
                web.post("/v1/chat/completions", self._chat),
                web.post("/v1/completions", self._completions),
                web.post("/v1/embeddings", self._embeddings),
                web.get("/health", self._health),
                web.get("/metrics", self._metrics),
                web.get("/version", self._version),
                web.get("/_fake/requests", self._shown),
                web.post("/_fake/faults", self._set_faults),
            ]
        )
        # A client that goes away cancels the handler, as vLLM aborts the request.
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        await self.listen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.faults.release.set()
        if self.faults.first_token is not None:
            self.faults.first_token.set()
        if self._runner is not None:
            await self._runner.cleanup()

    # --- before the handlers

    @web.middleware
    async def _record(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if not request.path.startswith("/_fake/"):
            raw = await request.read()
            body: Any = None
            with contextlib.suppress(ValueError):
                body = json.loads(raw) if raw else None
            self.requests.append(Received(request.method, request.path, dict(request.headers), body))
            await self._tell()
        self._active.add(request.protocol)
        try:
            answer: web.StreamResponse = await handler(request)
            return answer
        finally:
            self._active.discard(request.protocol)

    @web.middleware
    async def _guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        given = request.headers.get("Authorization", "")
        if self.key and request.path.startswith("/v1") and given != f"Bearer {self.key}":
            return web.json_response({"error": "Unauthorized"}, status=401)
        try:
            answer: web.StreamResponse = await handler(request)
        except wire.Refused as refused:
            return web.json_response(refused.body, status=refused.status)
        return answer

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    # --- pages

    async def _models(self, request: web.Request) -> web.Response:
        if self.faults.models_status is not None:
            body = wire.error_body(self.faults.models_status, "InternalServerError", "models are out")
            return web.json_response(body, status=self.faults.models_status)
        rows = [wire.model_row(name, self.models[0], self.max_model_len) for name in self.models]
        return web.json_response({"object": "list", "data": rows})

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response(status=200)

    async def _version(self, request: web.Request) -> web.Response:
        return web.json_response({"version": self.version})

    async def _metrics(self, request: web.Request) -> web.Response:
        if self.faults.metrics_missing:
            return web.json_response({"detail": "Not Found"}, status=404)
        return web.Response(text=wire.metrics_text(self.models[0], self.running, self.waiting))

    async def _shown(self, request: web.Request) -> web.Response:
        rows = [
            {"method": r.method, "path": r.path, "headers": dict(r.headers), "body": r.body}
            for r in self.requests
        ]
        return web.json_response({"requests": rows, "aborted": self.aborted, "finished": self.finished})

    async def _set_faults(self, request: web.Request) -> web.Response:
        wanted = await request.json()
        for name in {one.name for one in fields(Faults)} - {"first_token", "release"}:
            if name in wanted:
                setattr(self.faults, name, wanted[name])
        return web.json_response({})

    # --- generation

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._generate(request, chat=True)

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        return await self._generate(request, chat=False)

    async def _embeddings(self, request: web.Request) -> web.Response:
        body = self._accepted(await self._json(request))
        given = body.get("input")
        texts = given if isinstance(given, list) else [given]
        rows = [
            {"index": place, "object": "embedding", "embedding": [float(len(str(text))), 0.5, -0.5]}
            for place, text in enumerate(texts)
        ]
        words = sum(len(str(text).split()) for text in texts)
        made = {"object": "list", "model": self.models[0], "data": rows, "usage": wire.usage(words, 0)}
        return web.json_response(made)

    async def _json(self, request: web.Request) -> dict[str, Any]:
        try:
            body = await request.json()
        except ValueError:
            raise wire.Refused(400, "Bad Request", "JSON decode error") from None
        if not isinstance(body, dict):
            raise wire.Refused(400, "Bad Request", "Input should be a valid dictionary")
        return body

    def _accepted(self, body: dict[str, Any]) -> dict[str, Any]:
        status = self.faults.status
        if status is not None:
            kind = "Service Unavailable" if status == 503 else "InternalServerError"
            raise wire.Refused(status, kind, "The server is overloaded." if status == 503 else "It broke.")
        if body.get("model") not in (None, *self.models):
            raise wire.Refused(404, "NotFoundError", f"The model `{body['model']}` does not exist.", "model")
        return body

    async def _generate(self, request: web.Request, *, chat: bool) -> web.StreamResponse:
        body = await self._json(request)
        if self.faults.status is not None and self.faults.retry_after is not None:
            refused = wire.error_body(self.faults.status, "Service Unavailable", "The server is overloaded.")
            headers = {"Retry-After": self.faults.retry_after}
            return web.json_response(refused, status=self.faults.status, headers=headers)
        self._accepted(body)
        wire.check(body, chat=chat)
        wanted = body.get("max_completion_tokens") or body.get("max_tokens", None if chat else 16)
        prompt = wire.prompt_tokens(body, chat=chat)
        wire.check_length(prompt, wanted, self.max_model_len)
        request_id = f"{'chatcmpl' if chat else 'cmpl'}-{len(self.requests):08x}"
        answer = wire.Answer(
            request_id, self.models[0], body, self.pieces, prompt=prompt, wanted=wanted, chat=chat
        )
        try:
            async with self._slot():
                if self.faults.reset_before_headers:
                    self._reset(request)
                made = await (self._stream(request, answer) if body.get("stream") else self._plain(answer))
        except (asyncio.CancelledError, ConnectionError):
            self.aborted += 1
            await asyncio.shield(self._tell())
            raise
        self.finished += 1
        return made

    @contextlib.asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        self.waiting += 1
        try:
            async with self._slots or contextlib.nullcontext():
                self.waiting -= 1
                self.running += 1
                try:
                    yield
                finally:
                    self.running -= 1
                    self.waiting += 1
        finally:
            self.waiting -= 1

    async def _plain(self, answer: wire.Answer) -> web.Response:
        if self.faults.first_token is not None:
            await self.faults.first_token.wait()
        await asyncio.sleep(self.pace_s * len(answer.choices))
        return web.json_response(answer.reply())

    async def _stream(self, request: web.Request, answer: wire.Answer) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        if self.faults.first_token is not None:
            await self.faults.first_token.wait()
        if self.faults.garbage:
            await response.write(b"data: {not json\n\ndata: \xff\xfe\n\nevent\n<html>\n\n")
            return response
        if answer.chat:
            await _send(response, answer.event({"delta": {"role": "assistant", "content": ""}}))
        for sent, choice in enumerate(answer.choices):
            if await self._fault(request, response, sent):
                return response
            await asyncio.sleep(self.pace_s)
            await _send(response, answer.event(choice))
        if await self._fault(request, response, len(answer.choices)):
            return response
        for event in answer.last_events():
            await _send(response, event)
        await response.write(b"data: [DONE]\n\n")
        return response

    async def _fault(self, request: web.Request, response: web.StreamResponse, sent: int) -> bool:
        """What goes wrong after so many tokens; True when the stream ends here."""
        faults = self.faults
        if faults.stall_after == sent:
            await faults.release.wait()
        if faults.reset_after == sent:
            self._reset(request)
        if faults.error_after == sent:
            await _send(response, wire.error_body(500, "InternalServerError", "EngineCore died."))
            await response.write(b"data: [DONE]\n\n")
            return True
        return faults.end_after == sent

    def _reset(self, request: web.Request) -> None:
        transport = request.transport
        if transport is not None:
            connection = transport.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            transport.abort()
        raise asyncio.CancelledError  # what aiohttp raises here when a connection goes


async def _send(response: web.StreamResponse, event: dict[str, Any]) -> None:
    await response.write(b"data: " + json.dumps(event).encode() + b"\n\n")


async def _serve(options: argparse.Namespace) -> None:
    server = FakeVllm(
        models=options.model or (DEFAULT_MODEL,),
        max_model_len=options.max_model_len,
        key=options.key or os.environ.get("FAKE_VLLM_KEY"),
        pace_s=options.pace,
        slots=options.slots,
        port=options.port,
    )
    async with server:
        print(json.dumps({"url": server.url, "models": server.models, "pid": os.getpid()}), flush=True)
        await asyncio.Event().wait()


def main() -> None:
    """Serve until the process is ended; the first line on stdout is JSON with the address."""
    parser = argparse.ArgumentParser(prog="python -m tests.fake_vllm", description="a vLLM without a model")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--key", help="or the variable FAKE_VLLM_KEY")
    parser.add_argument("--model", action="append", help="served name; may be repeated")
    parser.add_argument("--max-model-len", type=int, default=4096)
    parser.add_argument("--pace", type=float, default=0.0, help="seconds per token")
    parser.add_argument("--slots", type=int, help="generations at the same time")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(parser.parse_args()))


if __name__ == "__main__":
    main()
