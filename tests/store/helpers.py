"""Small valid GGUF files and catalog entries for them."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from appliance.catalog import File, Model, ModelRef, Package, Source, UrlSource, Variant, WheelSource
from appliance.store import Limits, Progress

QUICK = Limits(attempts=4, backoff_s=0.01, backoff_max_s=0.02, silence_s=5.0, poll_s=0.05, settle_s=0.0)
MIB = 1 << 20


def gguf(
    n_bytes: int = 3 * MIB,
    *,
    seed: int = 1,
    tensor_bytes: int | None = None,
    part: tuple[int, int] | None = None,
) -> bytes:
    """A GGUF v3 file of exactly `n_bytes` with one F32 tensor; `tensor_bytes` lies about its length.

    `part` makes it one of a split set: its number from 1, and how many there are.
    """
    key, arch = b"general.architecture", b"llama"
    entries = [struct.pack("<Q", len(key)) + key + struct.pack("<IQ", 8, len(arch)) + arch]
    name = b"token_embd.weight" if part is None else f"blk.{part[0]}.weight".encode()
    if part is not None:
        for word, number in (("no", part[0] - 1), ("count", part[1]), ("tensors.count", part[1])):
            key = f"split.{word}".encode()
            entries.append(struct.pack("<Q", len(key)) + key + struct.pack("<II", 4, number))
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, len(entries)) + b"".join(entries)
    fixed = len(head) + 8 + len(name) + 4 + 8 + 4 + 8
    data_at = (fixed + 31) // 32 * 32
    count = ((n_bytes - data_at) if tensor_bytes is None else tensor_bytes) // 4
    head += struct.pack("<Q", len(name)) + name + struct.pack("<IQIQ", 1, count, 0, 0)
    return head + bytes(data_at - fixed) + random.Random(seed).randbytes(n_bytes - data_at)


def flip(path: Path, *offsets: int, keep_times: bool = False) -> None:
    """Change one bit at each offset (byte 9 without any); `keep_times` hides it from all but a hash."""
    before = path.stat()
    with path.open("r+b") as file:
        for at in offsets or (9,):
            file.seek(at)
            byte = file.read(1)
            file.seek(at)
            file.write(bytes([byte[0] ^ 1]))
    if keep_times:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def pin(name: str, body: bytes, *, sha256: str | None = None, members: tuple[str, ...] = ()) -> File:
    return File(
        name=name, size=len(body), sha256=sha256 or hashlib.sha256(body).hexdigest(), members=members
    )  # fmt: skip


def made(source: Source, *files: File, model_id: str = "tiny") -> ModelRef:
    variant = Variant(quant="F32", source=source, files=files)
    model = Model(id=model_id, family="tiny", name="Tiny", use=("chat",), variants=(variant,))
    return ModelRef(model, variant)


def at_url(url: str, body: bytes, *, sha256: str | None = None) -> ModelRef:
    return made(UrlSource(kind="url", url=f"{url}/tiny.gguf"), pin("tiny.gguf", body, sha256=sha256))


def in_wheel(*packages: tuple[str, str], file: File) -> ModelRef:
    named = tuple(Package(name=name, version=version) for name, version in packages)
    return made(WheelSource(kind="wheel", packages=named), file)


class Seen(list[Progress]):
    """Collects progress; use as on_progress."""

    def __call__(self, progress: Progress) -> None:
        self.append(progress)

    @property
    def phases(self) -> list[str]:
        """Phases in order, without repeats."""
        found: list[str] = []
        for item in self:
            if not found or found[-1] != item.phase:
                found.append(item.phase)
        return found


def files_in(folder: Path, kinds: Sequence[str] = (".part",)) -> list[Path]:
    return sorted(path for kind in kinds for path in folder.rglob(f"*{kind}"))


async def until(true: Callable[[], bool], what: str, limit_s: float = 20.0) -> None:
    """Poll a condition that another process makes true."""
    end = time.monotonic() + limit_s
    while not true():
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not happen within {limit_s} s")
        await asyncio.sleep(0.01)
