"""A folder that a program should not import from, although it is started there."""

from __future__ import annotations

from pathlib import Path


def trap(folder: Path) -> Path:
    """Make `folder` with modules of well-known names; the path of the mark that they leave when imported."""
    mark = folder / "imported"
    leave = f"open({str(mark)!r}, 'w').close()\n"
    for name in ("queue.py", "json.py", "appliance/__init__.py"):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(leave, encoding="utf-8")
    return mark
