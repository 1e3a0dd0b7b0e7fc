"""A package index on loopback: the simple index as HTML (PEP 503) or JSON (PEP 691), and its files."""

from __future__ import annotations

import hashlib
import html
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Self

_JSON = "application/vnd.pypi.simple.v1+json"


@dataclass(slots=True)
class Offer:
    """One file of a project. `stated` is the hash on the page: None for none, else what is given."""

    path: Path
    stated: str | None = ""
    name: str = ""
    extra: str = ""
    """Further attributes of its link on the HTML page."""

    def __post_init__(self) -> None:
        if self.stated == "":
            self.stated = hashlib.sha256(self.path.read_bytes()).hexdigest()
        self.name = self.name or self.path.name


@dataclass(slots=True)
class Index:
    """Use as a context manager. `folders` maps `cu128` (or "" for none) to the files of each project."""

    folders: dict[str, dict[str, list[Offer]]] = field(default_factory=dict)
    as_json: bool = False
    cut_after: int | None = None
    """Bytes after which a file's transfer breaks off, once for each file."""
    hold: threading.Event | None = None
    """A file stops half-way until this is set."""
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    """Path and Range of each request."""
    half_way: threading.Event = field(default_factory=threading.Event)
    _server: ThreadingHTTPServer | None = None
    _cut: set[str] = field(default_factory=set)

    def __enter__(self) -> Self:
        index = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                index._answer(self)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.hold is not None:
            self.hold.set()
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.server_port}/"

    def wheel_url(self, offer: Offer) -> str:
        (folder,) = (
            folder
            for folder, projects in self.folders.items()
            if any(offer in offers for offers in projects.values())
        )
        return f"{self.url}files/{folder or '_'}/{offer.name}#sha256={offer.stated}"

    def offer(self, path: str) -> Offer | None:
        folder, _, name = path.partition("/")
        projects = self.folders.get("" if folder == "_" else folder, {})
        return next((one for offers in projects.values() for one in offers if one.name == name), None)

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        path = handler.path.partition("?")[0]
        self.asked.append((path, handler.headers.get("Range")))
        if path.startswith("/files/"):
            return self._file(handler, path.removeprefix("/files/"))
        parts = [part for part in path.split("/") if part]
        page = self._page(parts)
        if page is None:
            return _send(handler, 404, "text/plain", b"not here")
        return _send(handler, 200, _JSON if self.as_json else "text/html; charset=utf-8", page.encode())

    def _page(self, parts: list[str]) -> str | None:
        folder = parts[0] if parts and parts[0] in self.folders else ""
        rest = parts[1:] if folder else parts
        projects = self.folders.get(folder)
        if projects is None or len(rest) > 1 or (rest and rest[0] not in projects):
            return None
        if self.as_json:
            return _json(folder, projects, rest)
        return _html(folder, projects, rest)

    def _file(self, handler: BaseHTTPRequestHandler, name: str) -> None:
        offer = self.offer(name)
        if offer is None:
            return _send(handler, 404, "text/plain", b"")
        data = offer.path.read_bytes()
        wanted = handler.headers.get("Range")
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
        handler.send_response(206 if wanted else 200)
        handler.send_header("Content-Length", str(len(data) - start))
        if wanted:
            handler.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        handler.end_headers()
        try:
            self._body(handler, name, data[start:])
        except OSError:
            handler.close_connection = True
        return None

    def _body(self, handler: BaseHTTPRequestHandler, name: str, data: bytes) -> None:
        if self.cut_after is not None and name not in self._cut:
            self._cut.add(name)
            handler.wfile.write(data[: self.cut_after])
            handler.wfile.flush()
            handler.close_connection = True
            return
        if self.hold is not None:
            handler.wfile.write(data[: len(data) // 2])
            handler.wfile.flush()
            self.half_way.set()
            self.hold.wait(60)
            data = data[len(data) // 2 :]
        handler.wfile.write(data)


def _html(folder: str, projects: dict[str, list[Offer]], rest: list[str]) -> str:
    if not rest:
        links = "".join(f'<a href="{name}/">{name}</a>\n' for name in projects)
    else:
        links = "".join(
            f'<a href="/files/{folder or "_"}/{html.escape(offer.name)}'
            + (f"#sha256={offer.stated}" if offer.stated else "")
            + f'"{offer.extra}>{offer.name}</a><br>\n'
            for offer in projects[rest[0]]
        )
    return f"<!DOCTYPE html><html><head><title>Index</title></head><body>{links}</body></html>"


def _json(folder: str, projects: dict[str, list[Offer]], rest: list[str]) -> str:
    document: dict[str, object] = {"meta": {"api-version": "1.1"}}
    if not rest:
        document["projects"] = [{"name": name} for name in projects]
    else:
        document |= {
            "name": rest[0],
            "files": [
                {
                    "filename": offer.name,
                    "url": f"/files/{folder or '_'}/{offer.name}",
                    "hashes": {"sha256": offer.stated} if offer.stated else {},
                    "size": offer.path.stat().st_size,
                }
                for offer in projects[rest[0]]
            ],
        }
    return json.dumps(document)


def _send(handler: BaseHTTPRequestHandler, status: int, kind: str, body: bytes) -> None:
    handler.send_response(status)
    handler.send_header("Content-Type", kind)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)
