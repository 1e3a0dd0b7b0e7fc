"""A small real HTTP control plane with scripted documents, which records what it was asked.

It writes a `daemon.json` that names this test process, so that the client's own checks run for real.
"""

from __future__ import annotations

import copy
import json
import os
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from appliance import __version__, processes
from appliance.paths import Paths
from tests.client import documents

TOKEN = "stub-token-0123456789"


@dataclass(frozen=True, slots=True)
class Call:
    """One request that the stub got."""

    method: str
    path: str
    query: dict[str, list[str]]
    body: Any


@dataclass
class Script:
    """What the stub answers. Tests change it while the server runs."""

    status: dict[str, Any] = field(default_factory=documents.normal)
    logs: list[str] = field(default_factory=list)
    events: list[bytes] = field(default_factory=list)
    answers: dict[tuple[str, str], tuple[int, Any]] = field(default_factory=dict)
    """(method, path) -> (status, document or raw bytes), before the defaults."""
    headers: dict[str, str] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    held: threading.Event = field(default_factory=threading.Event)
    """While cleared, no request is answered."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        script = self.server.script
        parts = urlsplit(self.path)
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = json.loads(raw) if raw else None
        script.calls.append(Call(self.command, parts.path, parse_qs(parts.query), body))
        script.held.wait(30)
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._send(401, {"error": {"code": "reject.key", "message": "wrong token"}})
        elif (self.command, parts.path) in script.answers:
            self._send(*script.answers[self.command, parts.path])
        elif parts.path == "/api/events":
            self._stream(script.events)
        else:
            self._send(200, self._default(parts.path, parse_qs(parts.query)))

    def _default(self, path: str, query: dict[str, list[str]]) -> Any:
        script = self.server.script
        if path == "/api/status":
            return script.status
        if path == "/api/logs":
            after = int(query["after"][0])
            lines = [{"seq": n, "line": line} for n, line in enumerate(script.logs, 1) if n > after]
            return {"lines": lines, "next": len(script.logs)}
        return {}

    def _send(self, status: int, document: Any) -> None:
        payload = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(payload)))
        for name, value in self.server.script.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(payload)

    def _stream(self, pieces: list[bytes]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for piece in pieces:
            self.wfile.write(piece)
        self.close_connection = True

    do_GET = do_POST = do_DELETE = do_PATCH = _answer  # noqa: N815 (names that http.server looks for)

    def log_message(self, *_: Any) -> None:
        """Quiet."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    script: Script

    def handle_error(self, *_: Any) -> None:
        """A client that leaves early is part of the tests."""


class StubDaemon:
    """The server; `start` and `stop` may alternate, `start` keeps the port and writes `daemon.json`."""

    def __init__(self, paths: Paths, script: Script | None = None) -> None:
        self.paths = paths.make()
        self.script = script or Script()
        self.script.held.set()
        self.port = 0
        self._server: _Server | None = None

    @property
    def url(self) -> str:
        """Root of the stub."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> StubDaemon:
        """Serve in a thread of its own."""
        server = _Server(("127.0.0.1", self.port), _Handler)
        server.script = self.script
        self.port = server.server_address[1]
        self._server = server
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        self.script.status = copy.deepcopy(self.script.status)
        self.script.status["daemon"] = dict(self.script.status.get("daemon") or {}, pid=os.getpid())
        self.write_record()
        return self

    def write_record(self, **changes: Any) -> None:
        """Write `daemon.json`; `changes` replace keys, None removes one."""
        record = {
            "pid": os.getpid(),
            "start_time": processes.start_time(os.getpid()),
            "version": __version__,
            "url": self.url,
            "token": TOKEN,
        } | changes
        kept = {key: value for key, value in record.items() if value is not None}
        self.paths.daemon_file.write_text(json.dumps(kept), encoding="utf-8")
        self.paths.daemon_file.chmod(0o600)

    def stop(self) -> None:
        """Close the port. Running answers end."""
        if self._server is not None:
            self.script.held.set()
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def asked(self, method: str, path: str) -> list[Call]:
        """The calls of this method and path."""
        return [call for call in self.script.calls if (call.method, call.path) == (method, path)]
