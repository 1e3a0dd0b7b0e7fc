"""`Store.pull` of 1 GiB over loopback to memory, with its hash, header check and record, beside `curl` alone.

    python -m benchmarks.download [MIB]     # medians of 5 in turn; exit code 1 below 0.8 of curl

The server is a process of its own that answers ranges with `sendfile`, one thread per connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import http.server
import multiprocessing
import os
import re
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from appliance.catalog import File, Model, ModelRef, UrlSource, Variant
from appliance.paths import Paths
from appliance.store import Store

BAR = 0.8
ROUNDS = 5
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")


class Handler(http.server.BaseHTTPRequestHandler):
    """GET of one file, whole or a range."""

    protocol_version = "HTTP/1.1"
    file: Path

    def do_GET(self) -> None:
        with self.file.open("rb") as data:
            size = os.fstat(data.fileno()).st_size
            match = _RANGE.fullmatch(self.headers.get("Range", ""))
            start = int(match[1]) if match else 0
            stop = int(match[2]) + 1 if match and match[2] else size
            self.send_response(206 if match else 200)
            self.send_header("Content-Length", str(stop - start))
            if match:
                self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{size}")
            self.end_headers()
            self.wfile.flush()
            with contextlib.suppress(ConnectionError):
                while start < stop:
                    start += os.sendfile(self.connection.fileno(), data.fileno(), start, stop - start)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        """Say nothing."""


def serve(file: Path, port: multiprocessing.Queue[int]) -> None:
    """The server's process."""
    Handler.file = file
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    port.put(server.server_address[1])
    server.serve_forever()


@contextlib.contextmanager
def served(file: Path) -> Iterator[str]:
    port: multiprocessing.Queue[int] = multiprocessing.Queue()
    process = multiprocessing.Process(target=serve, args=(file, port), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{port.get(timeout=30)}/tiny.gguf"
    finally:
        process.kill()
        process.join()


def write_model(path: Path, n_bytes: int) -> str:
    """A GGUF file with one tensor of noise. Returns its SHA-256."""
    key, arch, name = b"general.architecture", b"llama", b"token_embd.weight"
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 1)
    head += struct.pack("<Q", len(key)) + key + struct.pack("<IQ", 8, len(arch)) + arch
    data_at = (len(head) + 8 + len(name) + 4 + 8 + 4 + 8 + 31) // 32 * 32
    head += struct.pack("<Q", len(name)) + name + struct.pack("<IQIQ", 1, (n_bytes - data_at) // 4, 0, 0)
    noise, sha = os.urandom(1 << 20), hashlib.sha256()
    with path.open("wb") as out:
        left = n_bytes
        for piece in (head.ljust(data_at, b"\0"), *[noise] * (n_bytes // len(noise))):
            piece = piece[:left]
            out.write(piece)
            sha.update(piece)
            left -= len(piece)
    return sha.hexdigest()


def by_curl(url: str, folder: Path) -> float:
    out = folder / "curl.out"
    began = time.perf_counter()
    subprocess.run(["curl", "-sS", "--noproxy", "*", "-o", str(out), url], check=True)
    seconds = time.perf_counter() - began
    out.unlink()
    return seconds


def by_store(url: str, folder: Path, sha256: str, size: int) -> float:
    file = File(name="tiny.gguf", size=size, sha256=sha256)
    variant = Variant(quant="F32", source=UrlSource(kind="url", url=url), files=(file,))
    ref = ModelRef(Model(id="tiny", family="tiny", name="Tiny", use=("chat",), variants=(variant,)), variant)
    home = folder / "home"
    paths = Paths(*(home / part for part in ("config", "data", "state", "cache", "run"))).make()
    store = Store(paths, env={})
    began = time.perf_counter()
    asyncio.run(store.pull(ref))
    seconds = time.perf_counter() - began
    shutil.rmtree(home)
    return seconds


def main() -> int:
    size = int(sys.argv[1] if len(sys.argv) > 1 else 1024) << 20
    folder = Path(tempfile.mkdtemp(prefix="appliance-bench-", dir="/dev/shm"))
    try:
        sha256 = write_model(folder / "source", size)
        with served(folder / "source") as url:
            by_curl(url, folder)
            by_store(url, folder, sha256, size)
            curl, store = [], []
            for _ in range(ROUNDS):
                curl.append(by_curl(url, folder))
                store.append(by_store(url, folder, sha256, size))
    finally:
        shutil.rmtree(folder)
    ours, theirs = statistics.median(store), statistics.median(curl)
    for name, times in (("curl", curl), ("Store.pull", store)):
        middle = statistics.median(times)
        spread = f"{min(times):.2f} to {max(times):.2f}"
        print(f"{name:12} {middle:6.2f} s  {size / middle / 1e6:8.0f} MB/s  ({spread})")
    print(f"ratio        {theirs / ours:6.2f}  (at least {BAR})")
    return 0 if theirs / ours >= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
