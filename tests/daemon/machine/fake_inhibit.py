"""Scripts that stand in for `systemd-inhibit` and `caffeinate`: real processes that record their life."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from appliance import processes

_SCRIPT = """#!/bin/sh
me=$$
folder='{folder}'
echo "$me $*" >> "$folder/record"
env > "$folder/env"
case "$(cat "$folder/mode"):$1" in
refuse:*|refuse-sleep:--what=sleep*) echo '{refusal}' >&2; exit 1 ;;
dies:*) echo 'Failed to read: Connection reset by peer' >&2; exit 1 ;;
silent:*) exec sleep 60 ;;
esac
{run}
"""
_INHIBIT = """while [ "${1#--}" != "$1" ]; do shift; done
"$@"
code=$?
echo "$me ended" >> "$folder/record"
exit $code"""
_CAFFEINATE = 'exec sleep 60 # "$3"'

REFUSAL = "Failed to inhibit: Access denied"
"""As systemd 245 to 252 say it when polkit refuses; exit code 1."""
REFUSAL_NEW = (
    "Failed to inhibit: Access denied as the requested operation requires interactive authentication."
)


@dataclass(frozen=True)
class FakeProgram:
    """The script, and what it has noted."""

    folder: Path

    def mode(self, name: str) -> None:
        """holds | refuse | refuse-sleep | dies | silent"""
        (self.folder / "mode").write_text(name)

    @property
    def _record(self) -> list[tuple[int, str]]:
        file = self.folder / "record"
        lines = file.read_text().splitlines() if file.exists() else []
        return [(int(line.split(" ", 1)[0]), line.split(" ", 1)[1]) for line in lines if " " in line]

    @property
    def starts(self) -> list[str]:
        """The arguments of each start."""
        return [what for _, what in self._record if what != "ended"]

    @property
    def whats(self) -> list[str]:
        """What each start asked for."""
        return [arguments.split()[0].removeprefix("--what=") for arguments in self.starts]

    @property
    def pids(self) -> list[int]:
        return [pid for pid, what in self._record if what != "ended"]

    @property
    def alive(self) -> list[int]:
        """Those that still run."""
        return [pid for pid in self.pids if processes.start_ticks(pid) is not None]

    @property
    def ended(self) -> int:
        """How many ended because their command did."""
        return sum(what == "ended" for _, what in self._record)

    @property
    def environment(self) -> set[str]:
        """The names that the last one saw."""
        return {line.split("=", 1)[0] for line in (self.folder / "env").read_text().splitlines()}


def install(bin_folder: Path, name: str, *, mode: str = "holds", refusal: str = REFUSAL) -> FakeProgram:
    """Put the script there."""
    folder = bin_folder / f"{name}.seen"
    folder.mkdir(parents=True)
    run = _CAFFEINATE if name == "caffeinate" else _INHIBIT
    script = bin_folder / name
    script.write_text(
        _SCRIPT.replace("{folder}", str(folder)).replace("{refusal}", refusal).replace("{run}", run)
    )
    script.chmod(0o755)
    made = FakeProgram(folder)
    made.mode(mode)
    return made


async def until(holds: Callable[[], object], limit_s: float = 10.0) -> None:
    """Another process is looked at, so it is asked again and again."""
    async with asyncio.timeout(limit_s):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
