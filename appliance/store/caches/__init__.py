"""Models that other programs have on this computer. Only looks: nothing is changed, nothing is verified.

Everything found is foreign: what a folder, a manifest or the name of a blob says is a claim, which `adopt`
checks.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from appliance.store.caches import huggingface, lmstudio, ollama, paths
from appliance.store.caches.types import ORIGIN_NAMES, Bounds, Candidate, Origin, Part, Scan, Skipped

__all__ = [
    "ORIGIN_NAMES",
    "Bounds",
    "Candidate",
    "Origin",
    "Part",
    "Scan",
    "Skipped",
    "scan",
    "scan_path",
]

log = logging.getLogger("appliance.store")
_ALL: tuple[Origin, ...] = ("hf", "lmstudio", "ollama")


def scan(
    env: Mapping[str, str], home: Path, origins: Collection[Origin] = _ALL, bounds: Bounds | None = None
) -> tuple[Scan, ...]:
    """Look into every folder of these programs that is here. Blocks; costs at most `bounds` per folder."""
    bounds = bounds or Bounds()
    found: list[Scan] = []
    if "hf" in origins:
        found += [huggingface.scan(root, bounds) for root in _here(huggingface.roots(env, home))]
    if "lmstudio" in origins:
        found += [lmstudio.scan(root, bounds) for root in _here(lmstudio.roots(home, bounds))]
    if "ollama" in origins:
        found += [ollama.scan(root, bounds) for root in _here(ollama.roots(env, home))]
    return tuple(found)


def scan_path(path: Path, bounds: Bounds | None = None) -> Scan:
    """Look at one file, or into one folder, that the user named."""
    bounds = bounds or Bounds()
    return paths.of_folder(path, bounds) if path.is_dir() else paths.of_file(path, bounds)


def _here(roots: Iterable[Path]) -> list[Path]:
    """Those that are there, each folder once."""
    found: dict[str, Path] = {}
    for root in roots:
        try:
            os.lstat(root)
        except (FileNotFoundError, NotADirectoryError, ValueError):
            continue
        except OSError as error:  # it may be there: the look says why it can't be seen
            log.debug("%s: %s", root, error.strerror)
        found.setdefault(os.path.realpath(root), root)
    return list(found.values())
