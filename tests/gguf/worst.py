"""Files that cost a reader as much as its limits allow, most of them without breaking a rule of the format.

Most are sparse: a hole reads as zeros, and eight zeros are a string without bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.gguf.writer import ARRAY, BOOL, STRING, U32, array, entry, tensor, text

_I64, _BIG = 11, 1 << 50


def _array_head(key: str, kind: int, count: int) -> bytes:
    return text(key) + struct.pack("<IIQ", ARRAY, kind, count)


def _write(path: Path, entries: list[bytes], tensors: list[bytes] | None = None, *, hole: int = 0) -> None:
    tensors = tensors or []
    with path.open("wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(entries)))
        file.writelines(entries)
        file.writelines(tensors)
        file.truncate(file.tell() + hole)


def _strings(count: int, *lengths: int) -> bytes:
    unit = b"".join(struct.pack("<Q", n) + b"x" * n for n in lengths)
    return _array_head("tokenizer.ggml.tokens", STRING, count * len(lengths)) + unit * count


def _empty_strings(count: int) -> Callable[[Path], None]:
    return lambda path: _write(path, [_array_head("a", STRING, count)], hole=8 * count)


def _of(*entries: Callable[[], bytes]) -> Callable[[Path], None]:
    return lambda path: _write(path, [make() for make in entries])


def _many(count: int, make: Callable[[int], bytes]) -> Callable[[Path], None]:
    return lambda path: _write(path, [make(i) for i in range(count)])


def _tensors(count: int) -> Iterator[bytes]:
    return (tensor(f"{i:063}", (32, 1, 1, 1), 0, i * 128) for i in range(count))


def _jumps(path: Path) -> None:
    """Each key stands far behind the one before, so that each costs a read."""
    step, count = 3 << 20, 8_192
    with path.open("wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, 0, count))
        for i in range(count):
            file.write(_array_head(f"k{i}", U32, step // 4))
            file.seek(step, 1)
        file.truncate()


def _everything(path: Path) -> None:
    keys = [entry(f"k{i}", U32, i) for i in range(4_000)]
    short = [array(f"s{i}", STRING, ["x"] * 800) for i in range(60)]
    _write(path, [*keys, *short, _strings(80_000, 6, 9)], [*_tensors(4_000)], hole=4_001 * 128)


WORST: dict[str, Callable[[Path], None]] = {
    "a million empty strings": _empty_strings(1_000_000),
    "more empty strings than may be": _empty_strings(1 << 24),
    "strings of 47 bytes": _of(lambda: _strings(350_000, 47)),
    "strings of 127 bytes": _of(lambda: _strings(160_000, 127)),
    "strings of 128 bytes": _of(lambda: _strings(7_000, 128)),
    "too many strings of 128 bytes": _of(lambda: _strings(240_000, 128)),
    "strings of 1000 bytes": _of(lambda: _strings(5_500, 1000)),
    "a long string in each chunk": _of(lambda: _strings(6_000, *[1] * 31, 128)),
    "too long a string in each chunk": _of(lambda: _strings(30_000, *[1] * 31, 128)),
    "many string arrays": _many(1_000, lambda i: _array_head(f"k{i}", STRING, 1_025) + b"\0" * 8_200),
    "8192 numbers": _many(8_192, lambda i: entry(f"k{i}", U32, i)),
    "8192 short arrays": _many(8_192, lambda i: array(f"k{i}", STRING, ["ab"] * 8)),
    "short arrays of flags": _many(64, lambda i: array(f"k{i}", BOOL, [True] * 1_000)),
    "short arrays of numbers": _many(
        64, lambda i: _array_head(f"k{i}", _I64, 1_000) + struct.pack("<1000q", *range(_BIG, _BIG + 1_000))
    ),
    "keys of 65535 bytes": _many(63, lambda i: entry(f"{i:065535}", U32, i)),
    "text that is no UTF-8": _many(
        4, lambda i: text(f"k{i}") + struct.pack("<I", STRING) + text(b"\xff" * 1_040_000)
    ),
    "text that grows four times": _many(4, lambda i: entry(f"k{i}", STRING, "x" * 1_040_000 + "😀")),
    "a key far behind the other": _jumps,
    "8192 tensors": lambda path: _write(path, [], [*_tensors(8_192)], hole=8_193 * 128),
    "some of everything": _everything,
}  # fmt: skip
"""Name and maker of each file."""
