"""Plain-text pictures of the dashboard. `python -m tests.tui.golden_files` writes them; read the diff."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.client import documents
from tests.tui.screens import SIZES, fixed

FOLDER = Path(__file__).parent / "goldens"
STATES: dict[str, Callable[[], dict[str, Any]]] = {
    "normal": documents.normal,
    "empty": documents.empty,
    "several": documents.several,
    "loading": documents.loading,
    "failed": documents.failed,
    "cpu_only": documents.cpu_only,
}
CASES = [
    (state, size, ascii_only)
    for state in STATES
    for size in SIZES
    for ascii_only in (False, True)
    if not ascii_only or size == (80, 24)
]


def name(state: str, size: tuple[int, int], ascii_only: bool) -> str:
    """File name of a golden."""
    return f"{state}-{size[0]}x{size[1]}{'-ascii' if ascii_only else ''}.txt"


async def picture(state: str, size: tuple[int, int], ascii_only: bool) -> str:
    """The dashboard in this state after 40 polls of a rising load."""
    document = STATES[state]()
    async with fixed(document, size, ascii_only=ascii_only) as on:
        history = on.app.view.history
        for step in range(40):
            sample = on.app.view.snapshot
            assert sample is not None
            history = history.add(None if step == 20 else _varied(sample, step))
        on.app._show(history=history)
        await on.pilot.pause()
        return on.text + "\n"


def _varied(shot: Any, step: int) -> Any:
    from dataclasses import replace

    gpus = tuple(
        replace(gpu, utilisation=step * 2.5, power=20.0 + step * 4, temperature=40.0 + step)
        for gpu in shot.gpus
    )
    return replace(shot, gpus=gpus, host=replace(shot.host, cpu_percent=100.0 - step * 2))


def main() -> None:
    """Write all goldens."""
    os.environ.pop("NO_COLOR", None)
    FOLDER.mkdir(exist_ok=True)
    for state, size, ascii_only in CASES:
        file = FOLDER / name(state, size, ascii_only)
        file.write_text(asyncio.run(picture(state, size, ascii_only)), encoding="utf-8")


if __name__ == "__main__":
    main()
