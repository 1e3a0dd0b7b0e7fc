"""Which saved prompts belong to which engine: everything that the bytes of a KV cache depend on.

Threads, batch sizes, layers on devices and the like change neither the layout nor the meaning of a cache, so
they are left out by name; a flag that is not known here counts, whatever it is.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from appliance.engines.values import Build, Launch

_NEUTRAL = {
    "-ngl": 1, "-b": 1, "-ub": 1, "-t": 1, "-tb": 1, "-dev": 1, "-ts": 1, "-sm": 1, "-ncmoe": 1, "-fit": 1,
    "--cache-reuse": 1, "--no-mmproj-offload": 0, "-ngld": 1,
}  # fmt: skip
"""Flags of a plan that a saved prompt does not depend on, and how many values each has."""
_LIBRARIES = (".so", ".dll", ".dylib", ".pyd")
_LARGE = 1 << 20
"""Smaller files of a package are no engine."""
_MOST_FILES = 64


@dataclass(frozen=True, slots=True)
class Key:
    """What saved prompts depend on. `folder` names the folder of one key, `kind` what is proven once."""

    build: str
    """As people read it, with its version."""
    files: str
    """Digest over the names, sizes and times of the engine's files: its build number may mean nothing."""
    model: tuple[str, ...]
    """SHA-256 of each file of the model's weights."""
    flags: tuple[str, ...]
    """Those of the plan that count: context, slots, KV type, flash attention."""
    adapters: tuple[str, ...] = ()
    """SHA-256 and scale of each."""
    mode: str = ""
    """What else it was started for: embeddings, and how they are pooled."""

    @property
    def folder(self) -> str:
        return _digest(asdict(self))

    @property
    def kind(self) -> str:
        """The same without context and slots."""
        return _digest(asdict(self) | {"flags": _without(self.flags, {"-c": 1, "-np": 1})})


def key_of(build: Build, launch: Launch, model: Sequence[str]) -> Key:
    """Looks at the engine's files: call it in a thread."""
    mode = f"embedding {launch.pooling}" if launch.embedding else ""
    return Key(
        build=f"{build.build} {build.version or ''}".strip(),
        files=identity(build),
        model=tuple(model),
        flags=_without(launch.plan.flags, _NEUTRAL),
        adapters=tuple(f"{one.sha256} {one.scale}" for one in launch.lora),
        mode=mode,
    )


def identity(build: Build) -> str:
    """Digest over the engine's own files, so that another build of the same name is another engine."""
    rows = []
    for path in _files(build):
        with contextlib.suppress(OSError):
            found = path.stat()
            rows.append((path.name, found.st_size, found.st_mtime_ns))
    return _digest(sorted(rows))


def _files(build: Build) -> Iterator[Path]:
    if build.path is not None:
        program = Path(os.path.realpath(build.path))
        yield program
        yield from _libraries([program.parent, program.parent.parent / "lib"])
        return
    module = "xllamacpp" if build.kind == "xllamacpp" else "llama_cpp"
    home = Path(build.home) / module if build.home is not None else _package(module)
    if home is not None:
        yield from _libraries([home, home / "lib", home.with_name(f"{module}.libs")])


def _package(module: str) -> Path | None:
    """Its folder, without importing it: that would start the engine's library in this process."""
    with contextlib.suppress(ImportError, ValueError):
        spec = importlib.util.find_spec(module)
        if spec is not None and spec.origin is not None:
            return Path(spec.origin).parent
    return None


def _libraries(folders: Sequence[Path]) -> list[Path]:
    found: list[Path] = []
    for folder in folders:
        with contextlib.suppress(OSError):
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
            found += [Path(one.path) for one in entries if _is_library(one)]
    return found[:_MOST_FILES]


def _is_library(entry: os.DirEntry[str]) -> bool:
    name = entry.name.lower()
    is_one = name.endswith(_LIBRARIES) or ".so." in name
    return is_one and ("llama" in name or "ggml" in name or entry.stat().st_size >= _LARGE)


def _without(flags: Sequence[str], dropped: dict[str, int]) -> tuple[str, ...]:
    kept, rest = [], iter(flags)
    for flag in rest:
        if flag in dropped:
            for _ in range(dropped[flag]):
                next(rest, None)
        else:
            kept.append(flag)
    return tuple(kept)


def _digest(document: object) -> str:
    text = json.dumps(document, sort_keys=True, default=list)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
