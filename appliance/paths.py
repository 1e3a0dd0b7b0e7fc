"""The folders of this user. `APPLIANCE_HOME` puts all of them under one folder.

| folder  | holds                                                       |
| ------- | ----------------------------------------------------------- |
| config  | `config.toml`, the user's own `models.toml`                  |
| data    | model files, `pins.toml`, installed engines                 |
| state   | `daemon.json`, `journal.sqlite`, logs                        |
| cache   | what can be made again                                      |
| runtime | sockets; short, since a Unix socket path holds 107 bytes     |
"""

from __future__ import annotations

import os
import sys
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from appliance.errors import UsageError

if TYPE_CHECKING:
    from platformdirs import PlatformDirs

SOCKET_PATH_LIMIT = 107
"""Bytes of a Unix socket's path on Linux."""
_APP = "llama-appliance"


@dataclass(frozen=True, slots=True)
class Paths:
    """Where things live."""

    config: Path
    data: Path
    state: Path
    cache: Path
    runtime: Path

    @property
    def config_file(self) -> Path:
        return self.config / "config.toml"

    @property
    def user_catalog(self) -> Path:
        return self.config / "models.toml"

    @property
    def pins(self) -> Path:
        """Variants that the catalog lacks, as pinned at their first use: written by the program."""
        return self.data / "pins.toml"

    @property
    def licenses(self) -> Path:
        """Which limited licences the user has accepted."""
        return self.state / "licenses.json"

    @property
    def learned(self) -> Path:
        """What loads taught."""
        return self.state / "learned.json"

    @property
    def tuned(self) -> Path:
        """Which settings were measured to be the best here, by model, engine and kind of plan."""
        return self.state / "tuned.json"

    @property
    def load_times(self) -> Path:
        """How long models took to load, and how fast disks were read."""
        return self.state / "load_times.json"

    @property
    def hashed(self) -> Path:
        """What files outside the store were when they were hashed last."""
        return self.state / "hashed.json"

    @property
    def prompts(self) -> Path:
        """Saved prompts of engines: text of requests, private to the user."""
        return self.cache / "prompts"

    @property
    def prompt_proofs(self) -> Path:
        """On which engines saved prompts were shown to come back."""
        return self.state / "prompt_proofs.json"

    @property
    def models(self) -> Path:
        return self.data / "models"

    @property
    def engines(self) -> Path:
        """Engine builds that were installed here."""
        return self.data / "engines"

    @property
    def daemon_file(self) -> Path:
        return self.state / "daemon.json"

    @property
    def journal_file(self) -> Path:
        return self.state / "journal.sqlite"

    @property
    def logs(self) -> Path:
        return self.state / "logs"

    def make(self) -> Paths:
        """Create the folders; state and runtime are private to the user (0700)."""
        for folder, mode in (
            (self.config, 0o755), (self.data, 0o755), (self.models, 0o755), (self.cache, 0o755),
            (self.state, 0o700), (self.logs, 0o700), (self.runtime, 0o700),
        ):  # fmt: skip
            try:
                folder.mkdir(parents=True, exist_ok=True, mode=mode)
                if mode == 0o700:
                    if not _is_ours(folder):
                        raise PermissionError(13, "it belongs to another user")
                    folder.chmod(mode)
            except OSError as error:
                raise UsageError(
                    f"The folder {folder} can't be used.",
                    cause=error.strerror,
                    hint="Make it writable, or set APPLIANCE_HOME to a folder that is.",
                ) from error
        return self


def find() -> Paths:
    """The folders for this user and environment. Creates nothing."""
    home = os.environ.get("APPLIANCE_HOME")
    if home:
        root = Path(home).expanduser().absolute()
        return Paths(
            root / "config", root / "data", root / "state", root / "cache", _runtime(root / "run", root)
        )
    import platformdirs

    dirs = platformdirs.PlatformDirs(_APP, appauthor=False)
    state = Path(dirs.user_state_dir)
    return Paths(
        Path(dirs.user_config_dir),
        Path(dirs.user_data_dir),
        state,
        Path(dirs.user_cache_dir),
        _runtime(_session_folder(dirs, state), state),
    )


def _session_folder(dirs: PlatformDirs, state: Path) -> Path:
    """The system's folder for sockets; on Linux only where a session has one (cron and ssh may not)."""
    if sys.platform.startswith("linux") and not os.environ.get("XDG_RUNTIME_DIR"):
        return state / "run"
    return Path(dirs.user_runtime_dir)


def _runtime(wanted: Path, owner: Path) -> Path:
    """`wanted`, or a short private folder where a socket in it would have too long a path or no parent."""
    short = len(os.fsencode(wanted / "engine-00000000.sock")) <= SOCKET_PATH_LIMIT
    anchor = next((p for p in (wanted, *wanted.parents) if p.exists()), wanted)
    if short and os.access(anchor, os.W_OK):
        return wanted
    user = os.getuid() if hasattr(os, "getuid") else 0
    return Path(tempfile.gettempdir()) / f"appliance-{user}-{zlib.crc32(str(owner).encode()):08x}"


def _is_ours(folder: Path) -> bool:
    """False when another user made the folder first: nothing private may go into it."""
    return not hasattr(os, "getuid") or folder.stat().st_uid == os.getuid()
