"""A scripted engine for faults that no real one commits on demand. It speaks llama-server's wire.

`install(folder, Script(...))` writes an executable and returns a `Build` for it; the script may say something
else for each start (`then`). It is a program of its own: it dies, hangs, floods and leaks for real.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiohttp import web

if TYPE_CHECKING:
    from appliance.engines import Build

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Script:
    """What one start does. Seconds, tokens, signals."""

    load_s: float = 0.0
    """It answers 503 for this long."""
    load_lines: tuple[str, ...] = ("load_tensors: offloaded 0/31 layers to GPU",)
    die_at_start: int | None = None
    """Exit code before it listens; negative: the signal that it sends itself."""
    die_loading: int | None = None
    """The same at the end of the load."""
    hang_loading: bool = False
    flood_lines: int = 0
    ignore_sigterm: bool = False
    leak_child: bool = False
    """Leaves a process of its own session behind."""
    ctx: int | None = None
    """Tokens per slot that /props tells; None: as asked."""
    probe_status: int = 200
    tokens: tuple[str, ...] = ("Paris", " is", " the", " capital", ".")
    token_s: float = 0.0
    prompt_s: float = 0.0
    die_after_tokens: int | None = None
    stall_after_tokens: int | None = None
    garbage: bool = False
    """Answers that are not JSON."""
    error_after_tokens: int | None = None
    """A late error event, and no [DONE]."""


@dataclass(slots=True)
class _State:
    script: Script
    key: str
    alias: str
    slots: int
    ctx: int
    ready_at: float
    slot: asyncio.Semaphore = field(init=False)
    running: int = 0

    def __post_init__(self) -> None:
        self.slot = asyncio.Semaphore(self.slots)


def install(folder: Path, script: Script | None = None, *then: Script) -> Build:
    """Write the program and return its build. The first start follows `script`, later ones `then`."""
    from appliance.engines import Build  # the program itself does without it

    folder.mkdir(parents=True, exist_ok=True)
    scripts = [asdict(one) for one in (script or Script(), *then)]
    (folder / "scripts.json").write_text(json.dumps(scripts))
    program = folder / "llama-server"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        f"from tests.engines.fake_engine import main\nmain({str(folder)!r}, sys.argv[1:])\n"
    )
    program.chmod(0o755)
    return Build("llama-server", str(program), "10434", "llama-server 10434 (fake)")


def starts(folder: Path) -> int:
    """How often the program was started to serve."""
    file = folder / "starts"
    return len(file.read_text().splitlines()) if file.exists() else 0


def main(folder: str, argv: Sequence[str]) -> None:
    """The program."""
    if "--version" in argv:
        print("version: 10434 (fake)", file=sys.stderr)
        return
    if "--list-devices" in argv:
        print("Available devices:\n  (none)")
        return
    if "--help" in argv:
        print("--metrics --no-ui --cors-origins ORIGINS --no-warmup")
        return
    home = Path(folder)
    with (home / "starts").open("a") as file:
        file.write(f"{os.getpid()}\n")
    scripts = json.loads((home / "scripts.json").read_text())
    script = Script(**scripts[min(starts(home), len(scripts)) - 1])
    _misbehave_first(script)
    asyncio.run(_serve(script, list(argv)))


def _misbehave_first(script: Script) -> None:
    if script.ignore_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if script.leak_child:
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    _die(script.die_at_start)
    for number in range(script.flood_lines):
        print(f"flood {number}: {'x' * 80}", file=sys.stderr)
    for line in script.load_lines:
        print(line, file=sys.stderr, flush=True)


def _die(code: int | None) -> None:
    if code is None:
        return
    sys.stderr.flush()
    if code < 0:
        os.kill(os.getpid(), -code)
        time.sleep(10)
    os._exit(code)


def _option(argv: list[str], name: str, default: str) -> str:
    return argv[argv.index(name) + 1] if name in argv else default


async def _serve(script: Script, argv: list[str]) -> None:
    slots = int(_option(argv, "-np", "1"))
    state = _State(
        script=script,
        key=os.environ.get("LLAMA_API_KEY", ""),
        alias=_option(argv, "-a", "fake"),
        slots=slots,
        ctx=script.ctx or int(_option(argv, "-c", "4096")) // slots,
        ready_at=time.monotonic() + script.load_s,
    )
    app = web.Application(middlewares=[_gate(state)])
    app.router.add_get("/health", _health)
    app.router.add_get("/props", lambda _: _props(state))
    app.router.add_get("/slots", lambda _: _slots(state))
    app.router.add_get("/v1/models", lambda _: _models(state))
    app.router.add_get("/metrics", lambda _: _metrics(state))
    for path in ("/completion", "/v1/completions", "/v1/chat/completions"):
        app.router.add_post(path, lambda request: _generate(state, request))
    app.router.add_post("/v1/embeddings", lambda _: _embed(state))
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1.0)
    await runner.setup()
    host, port = _option(argv, "--host", "127.0.0.1"), int(_option(argv, "--port", "0"))
    site = web.UnixSite(runner, host) if host.endswith(".sock") else web.TCPSite(runner, host, port)
    await site.start()
    stop = asyncio.Event()
    if not script.ignore_sigterm:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    if script.die_loading is not None:
        await asyncio.sleep(script.load_s)
        _die(script.die_loading)
    await stop.wait()
    await runner.cleanup()


def _error(status: int, kind: str, message: str) -> web.Response:
    body = {"error": {"code": status, "message": message, "type": kind}}
    return web.json_response(body, status=status)


def _gate(state: _State) -> Any:
    @web.middleware
    async def gate(request: web.Request, handler: Any) -> web.StreamResponse:
        if state.script.hang_loading or time.monotonic() < state.ready_at:
            return _error(503, "unavailable_error", "Loading model")
        if request.path != "/health" and request.headers.get("Authorization") != f"Bearer {state.key}":
            return _error(401, "authentication_error", "Invalid API Key")
        answer: web.StreamResponse = await handler(request)
        return answer

    return gate


async def _health(_: web.Request) -> web.Response:
    return web.json_response({"status": "ok"})


async def _props(state: _State) -> web.Response:
    return web.json_response(
        {
            "default_generation_settings": {"n_ctx": state.ctx},
            "total_slots": state.slots,
            "build_info": "fake",
            "is_sleeping": False,
        }
    )


async def _slots(state: _State) -> web.Response:
    return web.json_response([{"id": n, "is_processing": n < state.running} for n in range(state.slots)])


async def _models(state: _State) -> web.Response:
    return web.json_response({"object": "list", "data": [{"id": state.alias, "object": "model"}]})


async def _metrics(state: _State) -> web.Response:
    return web.Response(text=f"llamacpp:requests_processing {state.running}\n")


async def _embed(state: _State) -> web.Response:
    data = [{"object": "embedding", "index": 0, "embedding": [1.0, 0.0]}]
    return web.json_response({"object": "list", "model": state.alias, "data": data,
                              "usage": {"prompt_tokens": 1, "total_tokens": 1}})  # fmt: skip


async def _generate(state: _State, request: web.Request) -> web.StreamResponse:
    script, body = state.script, await request.json()
    if script.probe_status != 200:
        return _error(script.probe_status, "server_error", "Compute error.")
    if script.garbage:
        return web.Response(body=b"\x00\xffnot json", content_type="application/json")
    if request.path == "/completion":
        return web.json_response({"content": script.tokens[0], "stop": True})
    async with state.slot:
        state.running += 1
        try:
            return await _answer(state, request, body)
        finally:
            state.running -= 1


async def _answer(state: _State, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    chat = request.path.endswith("/chat/completions")
    wanted = int(body.get("max_tokens") or body.get("max_completion_tokens") or len(state.script.tokens))
    tokens = state.script.tokens[:wanted]
    if not body.get("stream"):
        text = "".join(tokens)
        choice = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
        document = _document(state, chat, "chat.completion", choice | {"finish_reason": "stop"})
        return web.json_response(document | _usage(len(tokens)))
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    await asyncio.sleep(state.script.prompt_s)
    for number, token in enumerate(tokens):
        if not await _trouble(state.script, response, number):
            return response
        choice = {"delta": {"content": token}} if chat else {"text": token}
        await _event(
            response, _document(state, chat, "chat.completion.chunk", choice | {"finish_reason": None})
        )
        await asyncio.sleep(state.script.token_s)
    last = {"delta": {}} if chat else {"text": ""}
    ended = "stop" if len(tokens) == len(state.script.tokens) else "length"
    document = _document(state, chat, "chat.completion.chunk", last | {"finish_reason": ended})
    await _event(response, document | _usage(len(tokens)))
    await response.write(b"data: [DONE]\n\n")
    return response


async def _trouble(script: Script, response: web.StreamResponse, number: int) -> bool:
    """False when the stream ends here."""
    if number == script.die_after_tokens:
        await asyncio.sleep(0.05)  # the last event shall leave first
        _die(-signal.SIGKILL)
    if number == script.stall_after_tokens:
        await asyncio.sleep(3_600)
    if number == script.error_after_tokens:
        error = {"code": 500, "message": "Compute error.", "type": "server_error"}
        await _event(response, {"error": error})
        return False
    return True


async def _event(response: web.StreamResponse, document: dict[str, Any]) -> None:
    await response.write(b"data: " + json.dumps(document).encode() + b"\n\n")


def _document(state: _State, chat: bool, kind: str, choice: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": "chatcmpl-fake" if chat else "cmpl-fake",
        "object": kind if chat else "text_completion",
        "created": 1_790_000_000,
        "model": state.alias,
        "choices": [{"index": 0, **choice}],
    }


def _usage(completion: int) -> dict[str, Any]:
    usage = {"prompt_tokens": 5, "completion_tokens": completion, "total_tokens": 5 + completion}
    timings = {"cache_n": 0, "prompt_n": 5, "prompt_ms": 10.0, "prompt_per_second": 500.0,
               "predicted_n": completion, "predicted_ms": 20.0,
               "predicted_per_second": 50.0 * completion}  # fmt: skip
    return {"usage": usage, "timings": timings}
