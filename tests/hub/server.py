"""A Hub on this machine: repositories with commits, its API, its files by commit, and misbehaviour on demand.

    hub = Hub()
    repo = hub.add("owner/repo-GGUF", license="apache-2.0")
    commit = repo.commit({"m-Q4_K_M.gguf": body})
    with hub.running(): ... HF_ENDPOINT=hub.url ...

`hub.acts` are played first, one for each request; without one it behaves as the real one does.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from aiohttp import web

Act = Callable[[web.Request], Awaitable[web.StreamResponse]]
Files = Mapping[str, bytes]


@dataclass
class Repository:
    """One repository; `commits` keeps every state of it."""

    name: str
    license: str | None = "apache-2.0"
    gated: str | bool = False
    members: frozenset[str] = frozenset()
    """Tokens of those who accepted the terms."""
    private: bool = False
    downloads: int = 0
    likes: int = 0
    gguf: dict[str, Any] | None = None
    commits: dict[str, Files] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)

    def commit(self, files: Files, branch: str = "main") -> str:
        """A new state of `branch`; returns its commit."""
        text = repr([(path, hashlib.sha256(body).hexdigest()) for path, body in sorted(files.items())])
        commit = hashlib.sha1(f"{self.name} {len(self.commits)} {text}".encode()).hexdigest()
        self.commits[commit] = dict(files)
        self.branches[branch] = commit
        return commit


@dataclass
class Hub:
    """All repositories, and what was asked."""

    repositories: dict[str, Repository] = field(default_factory=dict)
    acts: list[Act] = field(default_factory=list)
    requests: list[web.Request] = field(default_factory=list)
    url: str = ""
    terse: bool = False
    """A mirror that leaves sizes and hashes out of a repository's description."""
    hashless: bool = False
    """A mirror that states no hash anywhere."""
    _asked: threading.Event = field(default_factory=threading.Event)
    next_page: str | None = None
    """Where the search says that it goes on."""

    def add(self, name: str, **facts: Any) -> Repository:
        made = Repository(name, **facts)
        self.repositories[name] = made
        return made

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/api/models", self._played(self._search))
        app.router.add_get("/api/models/{owner}/{name}", self._played(self._info))
        app.router.add_get("/api/models/{owner}/{name}/revision/{rev}", self._played(self._info))
        app.router.add_get("/api/models/{owner}/{name}/tree/{rev}", self._played(self._tree))
        app.router.add_post("/api/models/{owner}/{name}/paths-info/{rev}", self._played(self._paths_info))
        app.router.add_get("/{owner}/{name}/resolve/{rev}/{path:.+}", self._played(self._file))
        return app

    async def start(self) -> web.AppRunner:
        """Serve in this event loop; the caller cleans up."""
        runner = web.AppRunner(self.app(), shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        return runner

    @contextlib.contextmanager
    def running(self) -> Iterator[str]:
        """Serve in a thread while the body runs."""
        loop, ready = asyncio.new_event_loop(), threading.Event()

        def serve() -> None:
            asyncio.set_event_loop(loop)
            runner = loop.run_until_complete(self.start())
            ready.set()
            loop.run_forever()
            loop.run_until_complete(runner.cleanup())
            loop.close()

        thread = threading.Thread(target=serve, name="fake-hub")
        thread.start()
        assert ready.wait(10)
        try:
            yield self.url
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(10)

    @property
    def paths(self) -> list[str]:
        """What was asked, in order: `GET /api/models/...`."""
        return [f"{request.method} {request.path}" for request in self.requests]

    async def asked(self) -> None:
        """Wait, in another event loop than the server's, until a request has come."""
        await asyncio.to_thread(self._asked.wait, 10)

    def _played(self, honest: Act) -> Act:
        async def answer(request: web.Request) -> web.StreamResponse:
            self.requests.append(request)
            self._asked.set()
            act = self.acts.pop(0) if self.acts else honest
            return await act(request)

        return answer

    def _open(self, request: web.Request) -> tuple[Repository, str, Files]:
        """The repository, commit and files that a request names. Raises the Hub's own refusals."""
        repo = self.repositories.get(f"{request.match_info['owner']}/{request.match_info['name']}")
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if repo is None or (repo.private and token not in repo.members):
            raise refusal(404 if token else 401, "RepoNotFound", "Repository not found")
        rev = unquote(request.match_info.get("rev", "main"))
        commit = rev if rev in repo.commits else repo.branches.get(rev)
        if commit is None:
            raise refusal(404, "RevisionNotFound", f"Invalid rev id: {rev}")
        return repo, commit, repo.commits[commit]

    async def _info(self, request: web.Request) -> web.Response:
        repo, commit, files = self._open(request)
        stated = request.query.get("blobs") in ("true", "True") and not self.terse
        siblings = [
            {"rfilename": path} | (self._described(body) if stated else {})
            for path, body in sorted(files.items())
        ]
        return web.json_response(self._card(repo) | {"sha": commit, "siblings": siblings, "gguf": repo.gguf})

    def describes(self, name: str, files: Files) -> Act:
        """An act: describe a repository as if its commit held other files."""

        async def act(_: web.Request) -> web.StreamResponse:
            repo = self.repositories[name]
            siblings = [{"rfilename": path} | self._described(raw) for path, raw in sorted(files.items())]
            return web.json_response(
                self._card(repo) | {"sha": repo.branches["main"], "siblings": siblings, "gguf": repo.gguf}
            )

        return act

    async def _search(self, request: web.Request) -> web.Response:
        words = request.query.get("search", "").lower().split()
        found = [
            repo
            for repo in self.repositories.values()
            if not repo.private and all(word in repo.name.lower() for word in words)
        ]
        found.sort(key=lambda repo: -repo.downloads)
        headers = {"Link": f'<{self.next_page}>; rel="next"'} if self.next_page else {}
        return web.json_response([self._card(repo) for repo in found], headers=headers)

    async def _tree(self, request: web.Request) -> web.Response:
        _, _, files = self._open(request)
        return web.json_response([self._entry(path, body) for path, body in sorted(files.items())])

    async def _paths_info(self, request: web.Request) -> web.Response:
        _, _, files = self._open(request)
        wanted = (await request.post()).getall("paths")
        return web.json_response(
            [self._entry(str(path), files[str(path)]) for path in wanted if path in files]
        )

    async def _file(self, request: web.Request) -> web.Response:
        repo, commit, files = self._open(request)
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if repo.gated and token not in repo.members:
            raise refusal(403, "GatedRepo", f"Access to model {repo.name} is restricted")
        body = files.get(request.match_info["path"])
        if body is None:
            raise refusal(404, "EntryNotFound", "Entry not found")
        digest = hashlib.sha256(body).hexdigest()
        headers = {"ETag": f'"{digest}"', "X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
        if not self.hashless:
            headers |= {"X-Linked-Etag": f'"{digest}"', "X-Linked-Size": str(len(body))}
        wanted = request.http_range
        if "Range" not in request.headers:
            return web.Response(body=body, headers=headers)
        first = wanted.start or 0
        last = min(wanted.stop or len(body), len(body))
        if first >= len(body):
            return web.Response(status=416, headers={"Content-Range": f"bytes */{len(body)}"})
        headers["Content-Range"] = f"bytes {first}-{last - 1}/{len(body)}"
        return web.Response(status=206, body=body[first:last], headers=headers)

    def _card(self, repo: Repository) -> dict[str, Any]:
        card = {"license": repo.license} if repo.license else {}
        tags = ["gguf"] + ([f"license:{repo.license}"] if repo.license else [])
        return {
            "_id": "1", "id": repo.name, "modelId": repo.name, "private": repo.private, "gated": repo.gated,
            "downloads": repo.downloads, "likes": repo.likes, "tags": tags, "cardData": card,
            "lastModified": "2026-10-31T10:00:00.000Z", "createdAt": "2026-01-01T10:00:00.000Z",
        }  # fmt: skip

    def _entry(self, path: str, body: bytes) -> dict[str, Any]:
        described = self._described(body)
        lfs = described.get("lfs")
        entry = {"type": "file", "path": path, "size": described["size"], "oid": described["blobId"]}
        return entry | (
            {"lfs": {"oid": lfs["sha256"], "size": lfs["size"], "pointerSize": lfs["pointerSize"]}}
            if lfs
            else {}
        )

    def _described(self, body: bytes) -> dict[str, Any]:
        git = hashlib.sha1(f"blob {len(body)}\0".encode() + body).hexdigest()
        described: dict[str, Any] = {"size": len(body), "blobId": git}
        if not self.hashless:
            digest = hashlib.sha256(body).hexdigest()
            described["lfs"] = {"size": len(body), "sha256": digest, "pointerSize": 134}
        return described


def refusal(status: int, code: str, message: str) -> web.HTTPException:
    """A refusal as the Hub words it."""
    kinds = {401: web.HTTPUnauthorized, 403: web.HTTPForbidden, 404: web.HTTPNotFound}
    return kinds[status](
        headers={"X-Error-Code": code, "X-Error-Message": message.encode("unicode_escape").decode()},
        text=f'{{"error": "{message}"}}',
    )


def says(status: int, body: str = "", kind: str = "text/plain", **headers: str) -> Act:
    """Answer so; `_` in header names stands for `-`."""

    async def act(_: web.Request) -> web.StreamResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(status=status, text=body, content_type=kind, headers=named)

    return act


def moves(url: str) -> Act:
    """Redirect there."""

    async def act(_: web.Request) -> web.StreamResponse:
        return web.Response(status=307, headers={"Location": url})

    return act


def drips(pause_s: float = 0.05) -> Act:
    """Never ends: one byte after the other until the client goes."""

    async def act(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            while True:
                await response.write(b" ")
                await asyncio.sleep(pause_s)
        return response

    return act


def silent(seconds: float = 5.0) -> Act:
    """Says nothing for so long."""

    async def act(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(seconds)
        return web.Response(text="late")

    return act
