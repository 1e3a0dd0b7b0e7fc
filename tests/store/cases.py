"""Rows of the table of cases: what a server does and what is on disk before. `test_cases.py` plays them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import xxhash

from appliance.errors import ApplianceError
from appliance.paths import Paths
from appliance.store import Store
from appliance.store.layout import Layout
from tests.store import server as acts
from tests.store.helpers import MIB, QUICK, at_url, gguf
from tests.store.server import Act, Host

SIZE = 3 * MIB
CHUNK = 64 << 10
N_CHUNKS = SIZE // CHUNK
LIMITS = replace(QUICK, chunk=CHUNK, segment=4 * CHUNK, silence_s=0.5)
BODY = gguf(SIZE)
OTHER = gguf(SIZE, seed=2)


Before = Callable[[Path], None]
"""Puts something on disk; is told the path of the partial file."""


def logged(*chunks: int, body: bytes = BODY, lie: bool = False, tail: str = "") -> Before:
    """A partial file with these chunks at their places, holes between them, and its log."""

    def make(part: Path) -> None:
        with part.open("wb") as out:
            for index in chunks:
                out.seek(index * CHUNK)
                out.write(body[index * CHUNK : (index + 1) * CHUNK])
        sha256 = at_url("http://x", BODY).variant.main.sha256
        head = {"v": 1, "size": SIZE, "sha256": sha256, "chunk": CHUNK, "source": None, "etag": None}
        lines = [json.dumps(head)]
        for index in chunks:
            data = b"lie" if lie else body[index * CHUNK : (index + 1) * CHUNK]
            lines.append(f"{index} {CHUNK} {xxhash.xxh3_64(data).hexdigest()}")
        part.with_name(part.name + ".log").write_text("\n".join(lines) + "\n" + tail)

    return make


def plain(body: bytes) -> Before:
    """A partial file of an earlier version: no log."""

    def make(part: Path) -> None:
        part.write_bytes(body)

    return make


def holes(part: Path) -> None:
    """A partial file whose log is lost: bytes, a hole, and more bytes."""
    logged(*range(10), *range(30, 40))(part)
    part.with_name(part.name + ".log").unlink()


def and_then(first: Before, change: Callable[[Path], None]) -> Before:
    def make(part: Path) -> None:
        first(part)
        change(part)

    return make


def flipped(at: int) -> Callable[[Path], None]:
    def change(part: Path) -> None:
        with part.open("r+b") as file:
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 1]))

    return change


def log_of(text: str) -> Callable[[Path], None]:

    def change(part: Path) -> None:
        part.with_name(part.name + ".log").write_text(text)

    return change


@dataclass(frozen=True)
class Case:
    """One row."""

    id: str
    plays: tuple[Act, ...] = ()
    usual: Act | None = None
    flips: dict[int, int] = field(default_factory=dict)
    etag: str | None = acts.ETAG
    before: Before | None = None
    sent: int = SIZE
    """Bytes of the body that the server may send at most."""
    requests: int | None = None
    """How many requests at most."""
    most: int = 4
    """How many of them at once at most."""
    aside: int = 0
    """Files in quarantine afterwards."""
    error: type[ApplianceError] | None = None
    says: str = ""
    kept: int = 0
    """After an error: bytes of the partial file at least, all of them right."""


def part_in(paths: Paths) -> Path:
    """Where the partial file of every row lies."""
    return Layout(paths.models).folder(at_url("http://x", BODY)) / "tiny.gguf.part"


def play(case: Case, paths: Paths, host: Host) -> Store:
    """Set the server and the disk up."""
    host.body, host.etag, host.flips = BODY, case.etag, dict(case.flips)
    host.acts, host.usual = list(case.plays), case.usual
    part = part_in(paths)
    if case.before is not None:
        part.parent.mkdir(parents=True)
        case.before(part)
    return Store(paths, env={}, limits=LIMITS)


def within(case: Case, host: Host) -> None:
    """The server was asked, and sent, no more than the row allows."""
    assert host.sent <= case.sent
    assert host.most <= case.most
    if case.requests is not None:
        assert len(host.requests) <= case.requests


def right(part: Path) -> int:
    """Bytes in whole chunks of the partial file that are those of the pin."""
    data = part.read_bytes()
    spans = [slice(n * CHUNK, (n + 1) * CHUNK) for n in range(N_CHUNKS)]
    return sum(CHUNK for span in spans if data[span] == BODY[span])
