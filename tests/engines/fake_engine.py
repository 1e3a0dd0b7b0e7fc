"""A scripted engine for faults that no real one commits on demand. It speaks llama-server's wire.

Standard library only, so that a start takes a moment: tests start it often. One connection per request, like
llama-server after a stream.

`install(folder, Script(...))` writes an executable and returns a `Build` for it; the script may say something
else for each start (`then`). It is a program of its own: it dies, hangs, floods and leaks for real.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from appliance.engines import Build

ROOT = Path(__file__).resolve().parents[2]
_SLEEPER = (sys.executable, "-S", "-c", "import time; time.sleep(600)")


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
    room: int | None = None
    """Tokens of all slots together that it has memory for; with more it ends while it loads."""
    room_serving: int | None = None
    """The same, but it loads, and ends at the first chat."""
    room_silent: int | None = None
    """As `room_serving`, but it dies of SIGSEGV without a word."""
    die_serving: int | None = None
    """Exit code, or signal, at the first chat."""
    place: str = "CUDA0"
    """Whose memory runs out."""
    hang_loading: bool = False
    flood_lines: int = 0
    ignore_sigterm: bool = False
    leak_child: bool = False
    """Leaves a process of its own session behind."""
    leak_session: bool = False
    """Leaves one behind that has a session of its own."""
    ctx: int | None = None
    """Tokens per slot that /props tells; None: as asked."""
    probe_status: int = 200
    tokens: tuple[str, ...] = ("Paris", " is", " the", " capital", ".")
    token_s: float = 0.0
    prompt_s: float = 0.0
    prompt_batches: int = 1
    """Steps of a prompt, after each of which the counters move."""
    die_after_tokens: int | None = None
    stall_after_tokens: int | None = None
    """The stream says nothing more, and the counters stand still."""
    hang_after_tokens: int | None = None
    """The loop of the engine hangs: nothing but /health is answered any more."""
    broken_after: int | None = None
    """After so many chats nothing is decoded any more: each answers 500, and /health is fine."""
    garbage: bool = False
    """Answers to chats that are not JSON."""
    garbage_probe: bool = False
    """Other answers, too."""
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
    on_cpu: bool
    slot: asyncio.Semaphore = field(init=False)
    busy: set[int] = field(default_factory=set)
    """Slots at work."""
    cached: dict[int, int] = field(default_factory=dict)
    """Tokens that each slot keeps of its last prompt and reply."""
    chats: int = 0
    decodes: int = 0
    read: int = 0
    written: int = 0
    hung: bool = False

    def __post_init__(self) -> None:
        self.slot = asyncio.Semaphore(self.slots)

    @contextlib.asynccontextmanager
    async def one_slot(self, wanted: int | None = None) -> AsyncIterator[int]:
        """A slot for one request: the wanted one when it is free, else the first."""
        async with self.slot:
            free = [number for number in range(self.slots) if number not in self.busy]
            number = wanted if wanted in free else free[0]
            assert number is not None
            self.busy.add(number)
            try:
                yield number
            finally:
                self.busy.discard(number)

    def metrics(self) -> str:
        """In the words of llama-server."""
        rows = (
            ("counter", "prompt_tokens_total", self.read), ("counter", "n_decode_total", self.decodes),
            ("counter", "tokens_predicted_total", self.written),
            ("gauge", "requests_processing", len(self.busy)), ("gauge", "requests_deferred", 0),
        )  # fmt: skip
        return "".join(
            f"# HELP llamacpp:{name} x\n# TYPE llamacpp:{name} {kind}\nllamacpp:{name} {value}\n"
            for kind, name, value in rows
        )

    def slot_rows(self) -> list[dict[str, Any]]:
        return [
            {"id": number, "n_ctx": self.ctx, "is_processing": number in self.busy}
            | ({"n_prompt_tokens": self.cached[number]} if number in self.cached else {})
            for number in range(self.slots)
        ]


def install(folder: Path, script: Script | None = None, *then: Script, devices: Sequence[str] = ()) -> Build:
    """Write the program and return its build. The first start follows `script`, later ones `then`.

    `devices` are lines of its list, such as `CUDA0: Some GPU (8192 MiB, 8000 MiB free)`.
    """
    from appliance.engines import Build  # the program itself does without it
    from appliance.engines.devices import from_text

    folder.mkdir(parents=True, exist_ok=True)
    scripts = [asdict(one) for one in (script or Script(), *then)]
    (folder / "scripts.json").write_text(json.dumps(scripts))
    (folder / "devices").write_text("".join(f"  {line}\n" for line in devices))
    program = folder / "llama-server"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        f"from tests.engines.fake_engine import main\nmain({str(folder)!r}, sys.argv[1:])\n"
    )
    program.chmod(0o755)
    listed = from_text((folder / "devices").read_text())
    return Build(
        "llama-server", str(program), "10434", "llama-server 10434 (fake)", listed, sees_gpu=bool(listed)
    )


def starts(folder: Path) -> int:
    """How often the program was started to serve."""
    file = folder / "starts"
    return len(file.read_text().splitlines()) if file.exists() else 0


def left(folder: Path) -> list[int]:
    """The processes that still run of this program, those included that it leaked."""
    import psutil

    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if any(str(folder) in word for word in process.cmdline()):
                found.append(process.pid)
    return found


def main(folder: str, argv: Sequence[str]) -> None:
    """The program."""
    if "--version" in argv:
        print("version: 10434 (fake)", file=sys.stderr)
        return
    if "--list-devices" in argv:
        print("Available devices:\n" + ((Path(folder) / "devices").read_text() or "  (none)"))
        return
    if "--help" in argv:
        print("--metrics --no-ui --cors-origins ORIGINS --no-warmup")
        return
    if _option(list(argv), "-fit", "off") == "on":
        os._exit(1)  # it can't be asked what a plan takes
    home = Path(folder)
    with (home / "starts").open("a") as file:
        file.write(f"{os.getpid()}\n")
    scripts = json.loads((home / "scripts.json").read_text())
    script = Script(**scripts[min(starts(home), len(scripts)) - 1])
    _misbehave_first(script, folder)
    if script.room is not None and int(_option(list(argv), "-c", "0")) > script.room:
        place = script.place if _option(list(argv), "-ngl", "0") != "0" else "CPU"
        print(f"alloc_tensor_range: failed to allocate {place} buffer of size 1056964608", file=sys.stderr)
        print("srv  llama_server: exiting due to model loading error", file=sys.stderr)
        _die(1)
    asyncio.run(_serve(script, list(argv)))


def _misbehave_first(script: Script, folder: str) -> None:
    if script.ignore_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if script.leak_child:
        subprocess.Popen([*_SLEEPER, folder])
    if script.leak_session:
        subprocess.Popen([*_SLEEPER, folder], start_new_session=True)
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
        on_cpu=_option(argv, "-ngl", "0") == "0",
    )
    host, port = _option(argv, "--host", "127.0.0.1"), int(_option(argv, "--port", "0"))

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await _one_request(state, reader, writer)
        writer.close()

    if host.endswith(".sock"):
        await asyncio.start_unix_server(connected, host)
    else:
        await asyncio.start_server(connected, host, port)
    stop = asyncio.Event()
    if not script.ignore_sigterm:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    if script.die_loading is not None:
        await asyncio.sleep(script.load_s)
        _die(script.die_loading)
    await stop.wait()
    os._exit(0)


async def _one_request(state: _State, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").splitlines()
    method, path, _ = head[0].split(" ")
    headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:] if line)}
    raw = await reader.readexactly(int(headers.get("content-length", "0")))
    out = _Writer(writer)
    path = path.partition("?")[0]
    if state.script.hang_loading or time.monotonic() < state.ready_at:
        await out.error(503, "unavailable_error", "Loading model")
    elif path != "/health" and headers.get("authorization") != f"Bearer {state.key}":
        await out.error(401, "authentication_error", "Invalid API Key")
    elif method == "GET":
        await _get(state, path, out)
    else:
        work = asyncio.create_task(_post(state, path, json.loads(raw or b"{}"), out))
        gone = asyncio.create_task(reader.read(1))  # ends when the client goes away
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        for task in (work, gone):
            task.cancel()
        await asyncio.gather(work, gone, return_exceptions=True)


@dataclass(slots=True)
class _Writer:
    """Writes one answer."""

    writer: asyncio.StreamWriter

    async def json(self, document: Any, status: int = 200) -> None:
        await self.raw(json.dumps(document).encode(), status)

    async def error(self, status: int, kind: str, message: str) -> None:
        await self.json({"error": {"code": status, "message": message, "type": kind}}, status)

    async def raw(self, body: bytes, status: int = 200) -> None:
        head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        self.writer.write(head.encode() + b"Connection: close\r\n\r\n" + body)
        await self.writer.drain()

    async def begin_stream(self) -> None:
        head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
        self.writer.write(head.encode() + b"Connection: close\r\n\r\n")
        await self.writer.drain()

    async def event(self, data: str) -> None:
        chunk = f"data: {data}\n\n".encode()
        self.writer.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
        await self.writer.drain()

    async def end_stream(self) -> None:
        self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()


async def _get(state: _State, path: str, out: _Writer) -> None:
    documents: dict[str, Any] = {
        "/health": {"status": "ok"},
        "/props": {
            "default_generation_settings": {"n_ctx": state.ctx},
            "total_slots": state.slots,
            "build_info": "fake",
            "is_sleeping": False,
        },
        "/slots": state.slot_rows(),
        "/v1/models": {"object": "list", "data": [{"id": state.alias, "object": "model"}]},
    }
    if state.hung and path != "/health":
        await asyncio.sleep(3_600)
    if path == "/metrics":
        await out.raw(state.metrics().encode())
    elif path in documents:
        await out.json(documents[path])
    else:
        await out.error(404, "not_found_error", "File Not Found")


async def _post(state: _State, path: str, body: dict[str, Any], out: _Writer) -> None:
    script = state.script
    cells, chat = state.ctx * state.slots, path.endswith("/chat/completions")
    if chat:
        _die(script.die_serving)
        _die(-signal.SIGSEGV if script.room_silent is not None and cells > script.room_silent else None)
    if chat and script.room_serving is not None and cells > script.room_serving:
        where = f"current device: {script.place[-1]}, in function f"
        print("std::bad_alloc" if state.on_cpu else f"CUDA error: out of memory\n  {where}", file=sys.stderr)
        _die(-signal.SIGABRT)
    state.chats += chat
    broken = script.broken_after is not None and state.chats > script.broken_after
    if state.hung:
        await asyncio.sleep(3_600)
    if broken:
        await out.error(500, "server_error", "Compute error.")
    elif script.probe_status != 200:
        await out.error(script.probe_status, "server_error", "Compute error.")
    elif script.garbage if path != "/completion" else script.garbage_probe:
        await out.raw(b"\x00\xffnot json")
    elif path == "/completion":
        async with state.one_slot(body.get("id_slot")) as slot:
            state.decodes, state.cached[slot] = state.decodes + 1, 2
            await out.json({"content": script.tokens[0], "stop": True, "id_slot": slot})
    elif path == "/v1/embeddings":
        data = [{"object": "embedding", "index": 0, "embedding": [1.0, 0.0]}]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        await out.json({"object": "list", "model": state.alias, "data": data, "usage": usage})
    else:
        async with state.one_slot(body.get("id_slot")) as slot:
            await _answer(state, path.endswith("/chat/completions"), body, out)
            state.cached[slot] = 5 + len(script.tokens)


async def _answer(state: _State, chat: bool, body: dict[str, Any], out: _Writer) -> None:
    script = state.script
    wanted = int(body.get("max_tokens") or body.get("max_completion_tokens") or len(script.tokens))
    tokens = script.tokens[:wanted]
    ended = "stop" if len(tokens) == len(script.tokens) else "length"
    for _ in range(script.prompt_batches):
        await asyncio.sleep(script.prompt_s / script.prompt_batches)
        state.decodes += 1
    state.read += 5
    if not body.get("stream"):
        text = "".join(tokens)
        whole: dict[str, Any] = (
            {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
        )
        kind = "chat.completion" if chat else "text_completion"
        await out.json(
            _document(state, kind, whole | {"finish_reason": ended})
            | _usage(len(tokens), state.script.token_s)
        )
        return
    kind = "chat.completion.chunk" if chat else "text_completion"
    await out.begin_stream()
    for number, token in enumerate(tokens):
        if not await _trouble(state, out, number):
            return
        state.decodes, state.written = state.decodes + 1, state.written + 1
        part: dict[str, Any] = {"delta": {"content": token}} if chat else {"text": token}
        await out.event(json.dumps(_document(state, kind, part | {"finish_reason": None})))
        await asyncio.sleep(script.token_s)
    last: dict[str, Any] = {"delta": {}} if chat else {"text": ""}
    await out.event(
        json.dumps(
            _document(state, kind, last | {"finish_reason": ended})
            | _usage(len(tokens), state.script.token_s)
        )
    )
    await out.event("[DONE]")
    await out.end_stream()


async def _trouble(state: _State, out: _Writer, number: int) -> bool:
    """False when the stream ends here, without [DONE]."""
    script = state.script
    if number == script.hang_after_tokens:
        state.hung = True
    if number == script.die_after_tokens:
        await asyncio.sleep(0.05)  # the last event shall leave first
        _die(-signal.SIGKILL)
    if state.hung or number == script.stall_after_tokens:
        await asyncio.sleep(3_600)
    if number == script.error_after_tokens:
        error = {"code": 500, "message": "Compute error.", "type": "server_error"}
        await out.event(json.dumps({"error": error}))
        await out.end_stream()
        return False
    return True


def _document(state: _State, kind: str, choice: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": "chatcmpl-fake" if kind.startswith("chat") else "cmpl-fake",
        "object": kind,
        "created": 1_790_000_000,
        "model": state.alias,
        "choices": [{"index": 0, **choice}],
    }


def _usage(completion: int, token_s: float) -> dict[str, Any]:
    usage = {"prompt_tokens": 5, "completion_tokens": completion, "total_tokens": 5 + completion}
    predicted_ms = 1000.0 * token_s * completion or 20.0
    timings = {
        "cache_n": 0,
        "prompt_n": 5,
        "prompt_ms": 10.0,
        "prompt_per_second": 500.0,
        "predicted_n": completion,
        "predicted_ms": predicted_ms,
        "predicted_per_second": 1000.0 * completion / predicted_ms,
    }
    return {"usage": usage, "timings": timings}
