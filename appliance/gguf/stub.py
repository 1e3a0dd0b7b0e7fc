"""Header-only stubs: the header's bytes, then a sparse hole of the full size.

The engine measures a plan on such a file: it prints its memory table before it reads any tensor data.
"""

from __future__ import annotations

from pathlib import Path

from appliance.errors import GgufError
from appliance.gguf.reader import read_header, read_header_bytes


def header_bytes(path: Path) -> bytes:
    """The bytes of a local file up to its tensor data. Raises GgufError for a broken header."""
    header = read_header(path)
    try:
        with path.open("rb") as file:
            return file.read(header.data_offset)
    except OSError as error:
        raise GgufError(f"{path} can't be read.", cause=error.strerror) from error


def write_stub(model: Path | bytes, out: Path, *, file_size: int | None = None) -> Path:
    """Write a stub of `model` (a local file, or the header's bytes as a download brings them) to `out`.

    The stub has `file_size` bytes, else the size of the local file, else the end of the last tensor. It takes
    a few MiB on disk. Raises GgufError for a broken header, or when `out` can't be written.
    """
    if isinstance(model, Path):
        prefix = header_bytes(model)
        size = file_size or model.stat().st_size
    else:
        header = read_header_bytes(model, file_size)
        prefix = model[: header.data_offset]
        last = max((t.offset + t.n_bytes for t in header.tensors), default=0)
        size = file_size or header.data_offset + last
    try:
        with out.open("wb") as file:
            file.write(prefix)
            file.truncate(max(size, len(prefix)))
    except OSError as error:
        raise GgufError(
            f"The stub {out} can't be written.", cause=error.strerror, hint="Free some space in that folder."
        ) from error
    return out
