"""What goes into a bundle, part by part. A part that can't be made says why, and the others are made."""

from __future__ import annotations

import getpass
import json
import os
import platform
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import tomlkit

from appliance import __version__, settings
from appliance.engines.builds import records
from appliance.errors import ApplianceError
from appliance.hardware import Machine
from appliance.journal.timeline import Entry, moment_of, read_timeline, to_line
from appliance.operations.bundle import lines, rows
from appliance.operations.bundle.cleaning import Cleaner
from appliance.operations.finding import Finding
from appliance.paths import Paths

HOURS = 24
MOST_ENTRIES = 60_000
MOST_TIMELINE = 16 << 20
MOST_LOG = 256 << 10
"""Bytes of the end of one log."""
MOST_LOGS = 16
_MOST_FILE = 1 << 20
_PACKAGES = (
    "llama-appliance", "xllamacpp", "llama-cpp-python", "nvidia-ml-py", "aiohttp", "psutil", "pydantic",
    "huggingface-hub", "textual",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Member:
    """One file of a bundle."""

    name: str
    what: str
    """For people."""
    data: bytes


@dataclass(frozen=True, slots=True)
class Missing:
    """A part that is not in it, and why."""

    name: str
    why: str


Part = Member | Missing


def cleaner(paths: Paths) -> Cleaner:
    """Knows the home folder, the names and the keys of this user."""
    names = [platform.node(), platform.node().partition(".")[0]]
    try:
        names.append(getpass.getuser())
    except (OSError, KeyError, ImportError):
        names.append(os.environ.get("USER", ""))
    return Cleaner.of(str(Path.home()), names, _secrets(paths))


def timeline(paths: Paths, clean: Cleaner, now: float) -> Part:
    """The newest entries of the last hours, in the order of time."""
    kept: list[str] = []
    used = 0
    for entry in _backwards(paths.journal_file, now - HOURS * 3_600, now):
        row = rows.cleaned(to_line(entry))
        text = "" if row is None else json.dumps(clean.all(row), ensure_ascii=False)
        used += len(text.encode()) + 1
        if used > MOST_TIMELINE or len(kept) >= MOST_ENTRIES:
            break
        if text:
            kept.append(text)
    if not kept:
        why = "there is no journal" if not paths.journal_file.exists() else "the journal tells nothing"
        return Missing("timeline.jsonl", f"{why} of the last {HOURS} hours")
    data = "\n".join(reversed(kept)) + "\n"
    return Member("timeline.jsonl", f"{len(kept):,} samples, events, decisions and requests", data.encode())


def doctor(findings: Sequence[Finding], clean: Cleaner) -> Part:
    """What `appliance doctor` finds."""
    return _document(
        "doctor.json", "what `appliance doctor` finds", [finding.to_json() for finding in findings], clean
    )


def versions(paths: Paths, clean: Cleaner, now: float) -> Part:
    """Versions, system, and whether a daemon is noted."""
    packages: dict[str, str | None] = {}
    for name in _PACKAGES:
        try:
            packages[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            packages[name] = None
    found = {
        "made_at": now, "version": __version__, "python": sys.version.split()[0],
        "system": platform.system(), "release": platform.release(), "machine": platform.machine(),
        "packages": packages, "daemon": _daemon(paths),
    }  # fmt: skip
    return _document("version.json", "versions, and the daemon that is noted", found, clean)


def hardware(machine: Machine, clean: Cleaner) -> Part:
    """The machine, without the names of other programs."""
    found = machine.to_json()
    for gpu in found["gpus"]:
        gpu["holders"] = [{"n_bytes": held["n_bytes"]} for held in gpu["holders"]]
    return _document("hardware.json", "GPUs, memory, cores", found, clean)


def config(paths: Paths, clean: Cleaner) -> Part:
    """The settings in force as a file that `replay --settings` takes."""
    try:
        found = settings.load(paths.config_file).model_dump(mode="json")
    except ApplianceError as error:
        return Missing("settings.toml", clean.text(" ".join(filter(None, (error.message, error.cause)))))
    text = tomlkit.dumps(clean.all(found))
    tomllib.loads(text)
    return Member("settings.toml", "the settings in force, without secrets", text.encode())


def engines(paths: Paths, clean: Cleaner) -> Part:
    """Installed builds and which one is used."""
    builds = [one.model_dump(mode="json") for one in records.installed(paths)]
    return _document(
        "engines.json", "installed engine builds", {"used": records.used(paths), "builds": builds}, clean
    )


def logs(paths: Paths, clean: Cleaner) -> Iterator[Part]:
    """The ends of the daemon's log and of the newest engine logs, as far as their lines may leave."""
    daemon = paths.logs / "daemon.log"
    yield _log(daemon, "logs/daemon.log", "the end of the daemon's log", lines.of_daemon, clean)
    found = sorted(paths.logs.glob("engine-*.log"), key=_changed, reverse=True)
    for number, file in enumerate(found[:MOST_LOGS], 1):
        name = f"logs/engine-{number}.log"
        yield _log(file, name, f"the end of {clean.text(file.name)}", lines.of_engine, clean)


def _log(
    file: Path,
    name: str,
    what: str,
    keep: Callable[[list[str]], tuple[list[str], int]],
    clean: Cleaner,
) -> Part:
    try:
        text = _end(file)
    except OSError as error:
        return Missing(name, f"it can't be read: {error.strerror}")
    kept, left_out = keep(text.splitlines())
    head = f"# {what}; {left_out:,} lines left out, since they may hold text of requests"
    data = "\n".join([head, *map(clean.text, kept)]) + "\n"
    return Member(name, f"{what}: {len(kept):,} lines, {left_out:,} left out", data.encode())


def _end(file: Path) -> str:
    with file.open("rb") as opened:
        size = opened.seek(0, os.SEEK_END)
        opened.seek(max(0, size - MOST_LOG))
        data = opened.read(MOST_LOG)
    if size > MOST_LOG:
        data = data.partition(b"\n")[2]  # the first line is only the rest of one
    return data.decode("utf-8", errors="replace")


def _changed(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


def _backwards(file: Path, since: float, until: float) -> Iterator[Entry]:
    while True:
        page = read_timeline(file, since, until)
        yield from reversed(page.entries)
        if not page.more or not page.entries:
            return
        until = moment_of(page.entries[0])


def _daemon(paths: Paths) -> dict[str, Any] | None:
    """What `daemon.json` says, but for its token and address."""
    found = _json(paths.daemon_file)
    if found is None:
        return None
    return {name: found.get(name) for name in ("pid", "version", "start_time")}


def _secrets(paths: Paths) -> list[str]:
    """Keys of this user that are known here: of remotes, of the Hub, of the running daemon."""
    names = ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "LLAMA_API_KEY", "OPENAI_API_KEY"]
    try:
        names += [one.api_key_env for one in settings.load(paths.config_file).remotes if one.api_key_env]
    except ApplianceError:
        names += [name for name in os.environ if name.upper().endswith(("_KEY", "_TOKEN", "_SECRET"))]
    token = (_json(paths.daemon_file) or {}).get("token")
    found = [os.environ.get(name, "") for name in names]
    return [*found, token] if isinstance(token, str) else found


def _json(file: Path) -> dict[str, Any] | None:
    try:
        with file.open("rb") as opened:
            found = json.loads(opened.read(_MOST_FILE))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _document(name: str, what: str, value: Any, clean: Cleaner) -> Member:
    text = json.dumps(clean.all(value), indent=1, ensure_ascii=False, default=str)
    return Member(name, what, f"{text}\n".encode())


def now() -> float:
    """Unix seconds."""
    return time.time()
