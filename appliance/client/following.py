"""Following one download of the daemon to its end."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from appliance.client.transfers import DownloadRow
from appliance.errors import ApplianceError, DownloadError

if TYPE_CHECKING:
    from appliance.client.door import Client

LOOK_S = 0.3


def follow(
    client: Client, download_id: str, on_change: Callable[[DownloadRow], None], limit_s: float
) -> DownloadRow:
    """See `Client.follow`."""
    shown: DownloadRow | None = None
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        row = find(client, download_id)
        if row != shown:
            shown = row
            on_change(row)
        if row.ended:
            return require_done(row)
        if row.paused:
            raise paused(row)
        time.sleep(LOOK_S)
    raise DownloadError("The download takes too long.", hint="The daemon goes on with it.")


def find(client: Client, download_id: str) -> DownloadRow:
    """The row as it is now. Raises DownloadError when the daemon does not know it."""
    found = next((row for row in client.downloads() if row.id == download_id), None)
    if found is None:
        raise DownloadError("The daemon no longer knows this download.", hint="Start it again; it goes on.")
    return found


def paused(row: DownloadRow) -> DownloadError:
    """Nobody knows when it goes on."""
    return DownloadError(
        f"The download of {row.ref} is paused.", hint=f"`appliance models pull {row.ref}` resumes it."
    )


def require_done(row: DownloadRow) -> DownloadRow:
    """The row of a download that ended well. Raises the error it ended with."""
    if row.phase == "done":
        return row
    raise error_of_row(row)


def error_of_row(row: DownloadRow) -> ApplianceError:
    """What a download ended with, as the error of its code."""
    from appliance.client.transport import error_of

    if row.error is not None:
        said = {"code": row.error.code, "message": row.error.message, "cause": row.error.cause,
                "hint": row.error.hint}  # fmt: skip
        return error_of(said, DownloadError.status)
    return DownloadError(
        f"The download of {row.ref} ended: {row.phase}.",
        cause=row.message,
        hint="Start it again; it goes on.",
    )
