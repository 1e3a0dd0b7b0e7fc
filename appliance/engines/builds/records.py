"""What is known of the installed builds, on disk.

    <data>/engines/state.json           which build is used, the one before; pins of all files ever taken
                  /.lock                held by whoever changes something here
                  /.new-*/              an install under way; what a killed one left goes with the next
                  /<name>/record.json   one build: written before the folder gets its name
                  /<name>/files/        what the wheel held

A record that can't be read is a build that is not there; a broken state begins anew: told as warnings.
"""

from __future__ import annotations

import contextlib
import logging
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from appliance import processes
from appliance.engines.values import EngineKind
from appliance.errors import EngineError
from appliance.paths import Paths
from appliance.store import layout

log = logging.getLogger("appliance.engines")

RECORD, FILES, STATE = "record.json", "files", "state.json"
AUTO = "auto"
MOST_BUILDS = 16
MOST_PINS = 256
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")
SHA256 = r"^[0-9a-f]{64}$"
_SCRATCH = ".new-"
_LIMIT = 1 << 20
_WAIT_S = 2.0


class Tested(BaseModel):
    """How the load of the test model ended."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ok: bool
    at: float
    device: str = Field("CPU", max_length=200)
    seconds: float | None = None
    why: str | None = Field(None, max_length=1_000)
    """What went wrong, for people."""


class Installed(BaseModel):
    """One installed build, as its record says."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    v: int = 1
    name: str = Field(pattern=rf"^{NAME.pattern}$")
    backend: str = Field(max_length=20)
    """`cuda`, `rocm` or `vulkan`: what was asked for."""
    variant: str = Field(max_length=40)
    """Where it lies on the publisher's index: `cu128`; else the backend."""
    project: str = Field(max_length=100)
    kind: EngineKind
    version: str = Field(max_length=60)
    date: str | None = None
    date_about: bool = False
    file: str = Field(max_length=250)
    url: str = Field(max_length=2_000)
    """Where it came from, without secrets."""
    sha256: str = Field(pattern=SHA256)
    size: int = Field(ge=0)
    """Bytes of the wheel."""
    on_disk: int = Field(0, ge=0)
    """Bytes of what it held."""
    installed_at: float
    program: str | None = Field(None, max_length=1_000)
    """The llama-server, below `files/`; None for a Python package."""
    tested: Tested | None = None
    """None: it was never loaded."""

    @property
    def build(self) -> str:
        """For people, and the name under which lessons are kept: `xllamacpp 2026.10.11549 cu128`."""
        return f"{self.kind} {self.version} {self.variant}"


class Pin(BaseModel):
    """A file that was taken once: from then on its name means these bytes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    variant: str = Field(max_length=40)
    sha256: str = Field(pattern=SHA256)
    url: str = Field(max_length=2_000)
    version: str = Field(max_length=60)
    date: str | None = None
    at: float


class State(BaseModel):
    """Which build is used, and what was pinned."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    v: int = 1
    use: str = AUTO
    before: str | None = None
    """What `rollback` goes back to: a name or `auto`; None: there is nothing before."""
    pins: dict[str, tuple[Pin, ...]] = Field(default_factory=dict)
    """By file name; one for each variant of the index that has a file of that name."""


def read_state(paths: Paths) -> State:
    """The state; a fresh one where there is none or it is broken (told as a warning)."""
    found = _read(paths.engines / STATE, State)
    return found if isinstance(found, State) else State()


def used(paths: Paths) -> str | None:
    """The build that the user chose; None: it is left to us."""
    name = read_state(paths).use
    return None if name == AUTO else name


def write_state(paths: Paths, state: State) -> None:
    """Replace the state. The oldest pins go first when there are too many. Raises EngineError."""
    pins = dict(state.pins)
    for name in sorted(pins, key=lambda one: max((pin.at for pin in pins[one]), default=0.0)):
        if len(pins) <= MOST_PINS:
            break
        del pins[name]
    _write(paths.engines / STATE, state.model_copy(update={"pins": pins}))


def installed(paths: Paths) -> tuple[Installed, ...]:
    """The installed builds, the newest first."""
    folders = sorted(paths.engines.glob(f"*/{RECORD}"))[: 4 * MOST_BUILDS]
    found = (_read(file, Installed) for file in folders if not file.parent.name.startswith("."))
    builds = [one for one in found if isinstance(one, Installed) and folder(paths, one.name).is_dir()]
    return tuple(sorted(builds, key=lambda one: one.installed_at, reverse=True))


def find(paths: Paths, name: str) -> Installed | None:
    """The installed build of that name."""
    return next((one for one in installed(paths) if one.name == name), None)


def write_record(where: Path, record: Installed) -> None:
    """Write a build's record into its folder. Raises EngineError."""
    _write(where / RECORD, record)


def folder(paths: Paths, name: str) -> Path:
    """The folder of a build. The name has to be one of ours: it comes from records and users."""
    if not NAME.fullmatch(name):
        raise EngineError(f"{name[:100]!r} is not the name of a build.", hint="`appliance engines list`.")
    return paths.engines / name


def home(paths: Paths, name: str) -> Path:
    """Where its files lie."""
    return folder(paths, name) / FILES


@contextlib.contextmanager
def alone(paths: Paths) -> Iterator[None]:
    """Change something here, with nobody else. Raises EngineError when another process is at it."""
    try:
        paths.engines.mkdir(parents=True, exist_ok=True)
        lock = (paths.engines / ".lock").open("a")
    except OSError as error:
        raise unwritable(paths.engines, error) from None
    with lock:
        if not processes.locked_within(lock.fileno(), _WAIT_S):
            raise EngineError(
                "Another process is installing or removing an engine build.",
                hint="Wait for its end, then try again.",
            )
        yield


def scratch(paths: Paths, token: str) -> Path:
    """A new folder for an install, and none of those that killed ones left. Only for who is `alone`."""
    for left in paths.engines.glob(f"{_SCRATCH}*"):
        shutil.rmtree(left, ignore_errors=True)
    made = paths.engines / f"{_SCRATCH}{token}"
    try:
        made.mkdir(mode=0o700)
    except OSError as error:
        raise unwritable(made, error) from None
    return made


def unwritable(path: Path, error: OSError) -> EngineError:
    """Why nothing can be installed there."""
    return EngineError(
        f"{path} can't be written.",
        cause=error.strerror or type(error).__name__,
        hint="Make it writable, free some space, or set APPLIANCE_HOME to another folder.",
    )


def _write(path: Path, document: BaseModel) -> None:
    try:
        layout.write_json(path, document.model_dump(mode="json"))
    except OSError as error:
        raise unwritable(path, error) from None


def _read(path: Path, kind: type[BaseModel]) -> BaseModel | None:
    if not path.exists():
        return None
    try:
        if path.stat().st_size > _LIMIT:
            raise ValueError("it is too large")
        return kind.model_validate_json(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        why = f"{error.error_count()} values" if isinstance(error, ValidationError) else str(error)
        log.warning("%s can't be used (%s)", path, why)
        return None
