"""Header-only stubs: the header's bytes, then a sparse hole of the full size.

The engine measures a plan on such files: it prints its memory table before it reads any tensor data.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from appliance.errors import GgufError
from appliance.gguf.reader import read_header, read_header_bytes

_PIECE = 1 << 20
_SET_SPARSE = 0x000900C4
"""FSCTL_SET_SPARSE of winioctl.h."""


@dataclass(frozen=True, slots=True)
class StubPart:
    """One file of a model, of which nothing but the header has to be here."""

    name: str
    """The file's own name."""
    source: Path | bytes = field(repr=False)
    """A local file, or the first bytes of one, header included."""
    size: int
    """Bytes of the whole file."""
    n_header: int | None = None
    """Bytes up to the tensor data (`Header.data_offset`); None = read the header again to know."""


def header_bytes(path: Path) -> bytes:
    """The bytes of a local file up to its tensor data. Raises GgufError for a broken header."""
    return _beginning(path, read_header(path).data_offset)


def write_stub(part: StubPart, out: Path) -> Path:
    """Write a stub of `part` to `out`. It has the full size and takes a few MiB on disk.

    Raises GgufError for a broken header, or when `out` can't be written.
    """
    prefix = _prefix(part)
    try:
        with out.open("xb") as file:
            _make_sparse(file)
            file.write(prefix)
            file.truncate(max(part.size, len(prefix)))
    except OSError as error:
        raise GgufError(
            f"The stub {out} can't be written.", cause=error.strerror, hint="Free some space in that folder."
        ) from error
    return out


def write_stubs(parts: Sequence[StubPart], folder: Path, stem: str = "model") -> Path:
    """Stubs of all parts of one model, in order, in `folder`; the one that an engine is pointed at.

    Engines find the other parts of a split set by the name of the first, so the names follow that rule
    whatever the files are called. Raises GgufError.
    """
    if len(parts) == 1:
        return write_stub(parts[0], folder / f"{stem}.gguf")
    count = len(parts)
    written = [
        write_stub(part, folder / f"{stem}-{number:05}-of-{count:05}.gguf")
        for number, part in enumerate(parts, 1)
    ]
    return written[0]


def _prefix(part: StubPart) -> bytes:
    if isinstance(part.source, Path):
        if part.n_header is None:
            return header_bytes(part.source)
        return _beginning(part.source, part.n_header)
    if part.n_header is None:
        return part.source[: read_header_bytes(part.source, part.size).data_offset]
    return part.source[: part.n_header]


def _beginning(path: Path, n_bytes: int) -> bytes:
    try:
        with path.open("rb") as file:
            found = bytearray()
            while len(found) < n_bytes and (piece := file.read(min(_PIECE, n_bytes - len(found)))):
                found += piece
    except OSError as error:
        raise GgufError(f"{path} can't be read.", cause=error.strerror) from error
    if len(found) < n_bytes:
        raise GgufError(
            f"{path} is shorter than its header.",
            cause=f"It has {len(found)} bytes, and tensor data begins at byte {n_bytes}.",
            hint="The file changed meanwhile: check it, or fetch it again.",
        )
    return bytes(found)


def _make_sparse(file: BinaryIO) -> None:
    """NTFS fills a hole unless it is told not to; other file systems need no word."""
    if sys.platform == "win32":
        import ctypes
        import msvcrt

        handle, done = msvcrt.get_osfhandle(file.fileno()), ctypes.c_ulong()
        ctypes.windll.kernel32.DeviceIoControl(
            ctypes.c_void_p(handle), _SET_SPARSE, None, 0, None, 0, ctypes.byref(done), None
        )
