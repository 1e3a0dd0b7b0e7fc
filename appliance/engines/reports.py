"""Crash reports: how an engine's process ended, as a value and as a small file for later.

`engine-<model>.json` in the folder `crashes` of the state folder holds the last few of one model, newest
first. It holds the engine's last lines, which quote no request, and no text of one.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import secrets
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from appliance.engines.values import Build, CrashReport, Launch
from appliance.errors import EngineFailed
from appliance.paths import Paths
from appliance.text import clean_line

log = logging.getLogger("appliance.engines")

KEPT = 5
_LINE = 500
_LARGEST = 1 << 20
"""Bytes; a larger file is none of ours."""


def report_of(
    error: EngineFailed,
    exit_text: str,
    build: Build,
    launch: Launch,
    *,
    ready_at: float | None,
    requests: int,
) -> CrashReport:
    """The report of a process that has just ended."""
    now = time.time()
    return CrashReport(
        at=now,
        message=error.message,
        exit=exit_text,
        cause=error.cause,
        hint=error.hint,
        last_lines=tuple(line[:_LINE] for line in error.lines),
        flags=launch.plan.flags,
        build=build.build,
        uptime_s=None if ready_at is None else max(0.0, now - ready_at),
        requests=requests,
        out_of_memory=error.out_of_memory,
    )


def file_of(paths: Paths, model_id: str) -> Path:
    """Where the reports of this model's engines lie."""
    name = re.sub(r"[^A-Za-z0-9._-]", "_", model_id)[:80]
    return paths.state / "crashes" / f"engine-{name}.json"


def write(paths: Paths, model_id: str, report: CrashReport) -> None:
    """Add a report to the file, which keeps the newest. A disk that does not take it costs that only."""
    target = file_of(paths, model_id)
    rows = [asdict(one) for one in (report, *read(paths, model_id))][:KEPT]
    scratch = target.with_name(f".{secrets.token_hex(4)}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump({"schema": 1, "crashes": rows}, file)
        scratch.replace(target)
    except OSError as error:
        log.warning("The crash report can't be written: %s", error.strerror)
        with contextlib.suppress(OSError):
            scratch.unlink()


def read(paths: Paths, model_id: str) -> tuple[CrashReport, ...]:
    """The last reports of this model's engines, newest first; none when there is no file or it is broken."""
    file = file_of(paths, model_id)
    try:
        if file.stat().st_size > _LARGEST:
            raise ValueError("it is too large")
        return tuple(_row(row) for row in json.loads(file.read_text(encoding="utf-8"))["crashes"][:KEPT])
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        log.warning("The crash reports in %s are set aside: %s", file.name, clean_line(str(error), 100))
        return ()


def _row(row: dict[str, Any]) -> CrashReport:
    return CrashReport(
        at=float(row["at"]),
        message=str(row["message"]),
        exit=str(row["exit"]),
        cause=_text(row["cause"]),
        hint=_text(row["hint"]),
        last_lines=tuple(str(line) for line in row["last_lines"]),
        flags=tuple(str(flag) for flag in row["flags"]),
        build=str(row["build"]),
        uptime_s=None if row["uptime_s"] is None else float(row["uptime_s"]),
        requests=int(row["requests"]),
        out_of_memory=_text(row.get("out_of_memory")),
    )


def _text(value: object) -> str | None:
    return None if value is None else str(value)
