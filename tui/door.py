"""What the UI needs of a daemon: `appliance.client.Client` is one, tests and pictures bring others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from appliance.client import StatusSnapshot
from appliance.client.library import CatalogRow, LogPage


class Door(Protocol):
    """A connected client. All calls may block and raise ApplianceError."""

    @property
    def version_mismatch(self) -> str | None: ...

    def status(self) -> StatusSnapshot: ...

    def logs(self, after: int = 0, limit: int = 500) -> LogPage: ...

    def models(self) -> tuple[CatalogRow, ...]: ...

    def pinned(self) -> tuple[str, ...]: ...

    def load(self, ref: str) -> object: ...

    def unload(self, ref: str) -> object: ...

    def restart(self, ref: str) -> object: ...

    def pin(self, ref: str, pinned: bool) -> object: ...

    def stop_engine(self) -> None: ...

    def restart_engine(self) -> None: ...

    def pause_download(self, download_id: str) -> None: ...

    def resume_download(self, download_id: str) -> None: ...

    def cancel_download(self, download_id: str) -> None: ...


def nothing() -> None:
    """Nothing follows."""


class Send(Protocol):
    """(what is being done, the command): carried out beside the loop, then `then`. A failure is told."""

    def __call__(
        self, doing: str, command: Callable[[Door], object], then: Callable[[], None] = nothing
    ) -> None: ...
