"""All configured remotes, in the order of the settings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from appliance.remotes.remote import INTERVAL_S, Remote
from appliance.remotes.types import RemoteSnapshot
from appliance.settings import RemoteSettings


class RemotePool:
    """Owns one Remote per entry."""

    def __init__(
        self,
        settings: Sequence[RemoteSettings],
        *,
        env: Mapping[str, str] | None = None,
        interval_s: float = INTERVAL_S,
        on_change: Callable[[RemoteSnapshot], None] | None = None,
    ) -> None:
        self.remotes: tuple[Remote, ...] = tuple(
            Remote(one, env=env, interval_s=interval_s, on_change=on_change) for one in settings
        )

    @property
    def snapshot(self) -> tuple[RemoteSnapshot, ...]:
        """Each remote as it is known now."""
        return tuple(remote.snapshot for remote in self.remotes)

    def get(self, name: str) -> Remote:
        """The remote of this name. Raises KeyError."""
        for remote in self.remotes:
            if remote.name == name:
                return remote
        raise KeyError(name)

    async def start(self) -> None:
        """Start watching all of them; returns at once."""
        for remote in self.remotes:
            await remote.start()

    async def stop(self) -> None:
        """Stop watching and close every connection."""
        await asyncio.gather(*(remote.stop() for remote in self.remotes))
