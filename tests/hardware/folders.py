"""Writing the kernel's files into a folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from appliance.hardware.sysfs import Roots


def files(folder: Path, **contents: object) -> Path:
    """Small files with one value each; `__` in a name stands for `/`."""
    for name, value in contents.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")
    return folder


def pci(
    roots: Roots, address: str, vendor: int, device: int = 0x2684, kind: int = 0x030000, **more: object
) -> Path:
    """A device on the PCI bus."""
    folder = roots.sys / "bus" / "pci" / "devices" / address
    return files(
        folder, vendor=f"{vendor:#06x}", device=f"{device:#06x}", **{"class": f"{kind:#08x}"}, **more
    )


def opened(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Each file that is opened from now on, by Python's files or by the system's call."""
    found: list[Path] = []
    by_python, by_system = Path.open, os.open

    def python(self: Path, *args: Any, **more: Any) -> Any:
        found.append(self)
        return by_python(self, *args, **more)

    def system(path: Any, *args: Any, **more: Any) -> int:
        found.append(Path(path))
        return by_system(path, *args, **more)

    monkeypatch.setattr(Path, "open", python)
    monkeypatch.setattr(os, "open", system)
    return found
