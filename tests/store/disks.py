"""A real file system that fills up."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.paths import Paths


@contextlib.contextmanager
def small_file_system(root: Path, size: str) -> Iterator[Paths]:
    """Folders on a file system of `size` (as `mount` takes it): the one way to meet a real ENOSPC."""
    root.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(root)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a small file system needs root; the simulated full disk is tested above")
    try:
        yield Paths(root / "config", root / "data", root / "state", root / "cache", root / "run").make()
    finally:
        subprocess.run(["umount", str(root)], check=True)
