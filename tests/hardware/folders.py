"""Writing the kernel's files into a folder."""

from __future__ import annotations

from pathlib import Path

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
