"""A process of its own that pulls one model: `python -m tests.store.puller HOME URL SHA256 SIZE [CHUNK]`."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

from appliance.catalog import File, UrlSource
from appliance.paths import Paths
from appliance.store import Store
from tests.store.helpers import QUICK, made


def main() -> None:
    home, url, sha256, size, *chunk = sys.argv[1:]
    limits = replace(QUICK, chunk=int(chunk[0])) if chunk else QUICK
    root = Path(home)
    paths = Paths(root / "config", root / "data", root / "state", root / "cache", root / "run")
    ref = made(UrlSource(kind="url", url=url), File(name="tiny.gguf", size=int(size), sha256=sha256))
    stored = asyncio.run(Store(paths, limits=limits).pull(ref))
    print(stored.main)


if __name__ == "__main__":
    main()
