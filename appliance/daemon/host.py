"""What the gateway may ask of the daemon itself, and all ports in one value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from appliance.daemon.rooms import Rooms
from appliance.gateway.ports import Ports
from appliance.settings import Settings


class HostSide:
    """Implements `appliance.gateway.ports.Host`."""

    def __init__(self, rooms: Rooms) -> None:
        self._rooms = rooms

    def settings(self) -> Settings:
        return self._rooms.library.settings

    def health(self) -> Mapping[str, Any]:
        """`ok` when a request can be served here, else the state of the served model in one word."""
        serving = self._rooms.serving.snapshot
        status: str = "ok" if serving.state in ("ready", "busy") else serving.state
        if status == "absent" and self._rooms.downloads.running():
            status = "downloading"
        return {"status": status, "model": serving.ref.ref if serving.ref is not None else None}

    def ports(self) -> Ports:
        return Ports(self._rooms.local, self._rooms.remotes, self._rooms.journal, self)
