"""One look at a remote, for `remote test` without a daemon."""

from __future__ import annotations

from typing import Any

from appliance.errors import SettingsError
from appliance.remotes import Remote, RemoteSnapshot
from appliance.settings import Settings


def find(settings: Settings, name: str) -> int:
    """The remote's place in the settings. Raises SettingsError when there is none of that name."""
    for place, remote in enumerate(settings.remotes):
        if remote.name == name:
            return place
    known = ", ".join(remote.name for remote in settings.remotes) or "none"
    raise SettingsError(f"There is no remote {name!r}.", cause=f"Configured: {known}.")


async def probe(settings: Settings, name: str) -> dict[str, Any]:
    """Ask it once and close the connection."""
    remote = Remote(settings.remotes[find(settings, name)])
    try:
        return document(await remote.probe(), settings)
    finally:
        await remote.stop()


def rows_of(settings: Settings) -> list[dict[str, Any]]:
    """The configured remotes without asking any of them: their state is unknown."""
    return [document(Remote(one).snapshot, settings) for one in settings.remotes]


def document(snapshot: RemoteSnapshot, settings: Settings) -> dict[str, Any]:
    """The row of a remote in `remote list`, `/api/remotes` and the status."""
    configured = settings.remotes[find(settings, snapshot.name)]
    return {**snapshot.to_json(), "mapped": dict(configured.models)}
