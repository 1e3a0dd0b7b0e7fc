"""The error of a server that says no."""

from __future__ import annotations

from appliance.errors import DownloadError


class Refused(DownloadError):
    """The server answered with a status instead of the file."""

    def __init__(self, message: str, http_status: int, said: str, *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.http_status = http_status
        self.said = said
        """The Hub's word for why (`GatedRepo`), else empty."""
