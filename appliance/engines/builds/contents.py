"""What an unpacked wheel is: the `xllamacpp` package, or a program that is a llama-server."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from appliance.engines.values import EngineKind
from appliance.errors import EngineError

_NAMES = ("llama-server", "llama-server.exe")
_PROGRAMS = (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"MZ")
"""ELF, Mach-O, a Mach-O of several systems, Windows."""
PACKAGE = "xllamacpp"


@dataclass(frozen=True, slots=True)
class Contents:
    """What can be started."""

    kind: EngineKind
    program: str | None
    """Below the folder, with `/`; None for the Python package."""
    package: Path | None


def look(files: Path) -> Contents:
    """Look through the folder, and make its program one that can be started. Raises EngineError."""
    package = files / PACKAGE
    if (package / "__init__.py").is_file():
        return Contents("xllamacpp", None, package)
    programs = sorted(_programs(files), key=lambda one: (len(one.parts), str(one)))
    if programs:
        program = files / programs[0]
        program.chmod(program.stat().st_mode | 0o755)
        return Contents("llama-server", programs[0].as_posix(), None)
    raise EngineError(
        "The wheel holds no engine.",
        cause="Neither the package xllamacpp nor a llama-server is in it.",
        hint="Use another source.",
    )


def _programs(files: Path) -> list[Path]:
    found = []
    for where, _, names in os.walk(files):
        found += [Path(where, name) for name in names if name in _NAMES]
    return [path.relative_to(files) for path in found if _is_program(path)]


def _is_program(path: Path) -> bool:
    """A script of that name (the wheel's entry point, say) is none."""
    try:
        with path.open("rb") as file:
            return file.read(4).startswith(_PROGRAMS)
    except OSError:
        return False
