"""The archive: all parts and a README.txt, written in one step with mode 0600."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import secrets
import time
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from appliance.errors import ApplianceError, UsageError
from appliance.hardware import detect_safely
from appliance.operations import doctor
from appliance.operations.bundle import parts
from appliance.operations.bundle.cleaning import Cleaner
from appliance.operations.bundle.parts import HOURS, MOST_LOG, MOST_LOGS, MOST_TIMELINE, Member, Missing, Part
from appliance.paths import Paths
from appliance.units import size

NO_PROMPTS = "It contains no prompts, no replies, no keys and no tokens."
README = "README.txt"


@dataclass(frozen=True, slots=True)
class Packed:
    """A bundle that was written."""

    file: Path
    n_bytes: int
    members: tuple[Member, ...]
    missing: tuple[Missing, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "bundle": str(self.file), "bytes": self.n_bytes, "contains_prompts": False,
            "members": [{"name": m.name, "what": m.what, "bytes": len(m.data)} for m in self.members],
            "missing": [{"name": m.name, "why": m.why} for m in self.missing],
        }  # fmt: skip


def default_name(now: float) -> str:
    """`appliance-bundle-20261130-2226.zip`."""
    return time.strftime("appliance-bundle-%Y%m%d-%H%M%S.zip", time.localtime(now))


async def pack(paths: Paths, file: Path, daemon_url: str | None, *, force: bool = False) -> Packed:
    """Write the bundle. Raises UsageError or ApplianceError, and leaves nothing then."""
    _may_be_written(file, force)
    now, clean = parts.now(), parts.cleaner(paths)
    found: list[Part] = []
    try:
        findings = await doctor.examine(paths, daemon_url)
        found.append(parts.doctor(findings, clean))
    except Exception as error:  # noqa: BLE001  whatever is broken here is why a bundle is made
        found.append(Missing("doctor.json", f"the examination failed ({type(error).__name__})"))
    try:
        found.append(parts.hardware(await detect_safely(), clean))
    except Exception as error:  # noqa: BLE001
        found.append(Missing("hardware.json", f"the machine can't be looked at ({type(error).__name__})"))
    found += await asyncio.to_thread(_rest, paths, clean, now)
    members = tuple(one for one in found if isinstance(one, Member))
    missing = tuple(one for one in found if isinstance(one, Missing))
    readme = Member(README, "what is in it", _readme(members, missing).encode())
    data = _archive((readme, *members), now)
    await asyncio.to_thread(_write, file, data, force)
    return Packed(file, len(data), (readme, *members), missing)


def _rest(paths: Paths, clean: Cleaner, now: float) -> list[Part]:
    makers: list[tuple[str, Callable[[], Iterable[Part]]]] = [
        ("timeline.jsonl", lambda: [parts.timeline(paths, clean, now)]),
        ("settings.toml", lambda: [parts.config(paths, clean)]),
        ("version.json", lambda: [parts.versions(paths, clean, now)]),
        ("engines.json", lambda: [parts.engines(paths, clean)]),
        ("logs/", lambda: parts.logs(paths, clean)),
    ]
    found: list[Part] = []
    for name, make in makers:
        try:
            found += list(make())
        except Exception as error:  # noqa: BLE001  the same: one broken part must not cost the others
            found.append(Missing(name, f"it can't be made ({type(error).__name__})"))
    return found


def _readme(members: Iterable[Member], missing: Iterable[Missing]) -> str:
    inside = [f"  {member.name}: {member.what}" for member in members]
    absent = [f"  {one.name}: {one.why}" for one in missing]
    limits = f"At most {HOURS} hours and {size(MOST_TIMELINE)} of the timeline,"
    return "\n".join(
        [
            "A bundle of `appliance doctor --bundle`, for whoever is asked for help.",
            "",
            NO_PROMPTS,
            "",
            "In it:",
            *inside,
            *(["", "Not in it:", *absent] if absent else []),
            "",
            _LEFT_OUT,
            limits,
            f"and the last {size(MOST_LOG)} of the daemon's log and of each of {MOST_LOGS} engine logs.",
            "",
            "`appliance replay THIS.zip` runs the thermal rule and the router over the timeline.",
            "",
        ]
    )


_LEFT_OUT = """\
What was left out, and why:
  Text of requests and replies. An engine may print it, so lines of its log are kept only in
  forms that hold nothing but fixed words, numbers and names of devices.
  Of the daemon's log, what a line quotes after a colon or in brackets; of errors, their messages.
  Of the timeline, the names that clients asked for, and the sentences of decisions, which may
  quote a remote (a replay makes them anew).
  Saved prompts and crash reports as a whole; names of other programs.
  Keys, tokens, passwords, and the queries and passwords of addresses.
  Your home folder reads ~; your name and the machine's read [name].
"""


def _archive(members: Iterable[Member], now: float) -> bytes:
    out = io.BytesIO()
    when = time.localtime(max(now, 315_619_200))[:6]  # a zip archive knows no time before 1980
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for member in members:
            entry = zipfile.ZipInfo(member.name, when)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o600 << 16
            archive.writestr(entry, member.data)
    return out.getvalue()


def _may_be_written(file: Path, force: bool) -> None:
    if file.is_dir():
        raise UsageError(f"{file} is a folder.", hint="Name the file: --bundle FILE.zip.")
    if (file.exists() or file.is_symlink()) and not force:
        raise UsageError(f"{file} is there already.", hint="Name another file, or add --force to replace it.")
    if not file.absolute().parent.is_dir():
        raise UsageError(f"There is no folder {file.absolute().parent}.", hint="Make it, or name another.")


def _write(file: Path, data: bytes, force: bool) -> None:
    """In one step: a reader sees the whole bundle or none, and nobody else ever sees it."""
    scratch = file.absolute().with_name(f".{file.name[:60]}.{secrets.token_hex(4)}")
    try:
        with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        if force:
            scratch.replace(file)
        else:
            _take_free_name(scratch, file)
    except OSError as error:
        raise ApplianceError(
            f"{file} can't be written.", cause=error.strerror, hint="Name a file in another folder."
        ) from error
    finally:
        with contextlib.suppress(OSError):
            scratch.unlink()


def _take_free_name(scratch: Path, file: Path) -> None:
    """Raises FileExistsError when somebody took the name meanwhile, as far as the file system can tell."""
    try:
        os.link(scratch, file)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if file.exists():
            raise FileExistsError(17, "it is there already") from None
        scratch.replace(file)
