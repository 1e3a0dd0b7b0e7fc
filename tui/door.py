"""What the UI needs of a daemon: `appliance.client.Client` is one, tests and pictures bring others."""

from __future__ import annotations

from typing import Protocol

from appliance.client import StatusSnapshot
from appliance.client.library import LogPage


class Door(Protocol):
    """A connected client. All calls may block and raise ApplianceError."""

    @property
    def version_mismatch(self) -> str | None: ...

    def status(self) -> StatusSnapshot: ...

    def logs(self, after: int = 0, limit: int = 500) -> LogPage: ...

    def stop_engine(self) -> None: ...

    def restart_engine(self) -> None: ...

    def pause_download(self, download_id: str) -> None: ...

    def resume_download(self, download_id: str) -> None: ...

    def cancel_download(self, download_id: str) -> None: ...
