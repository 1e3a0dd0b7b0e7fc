"""What the gateway may ask of the daemon itself, and all ports in one value."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from appliance.daemon.rooms import Rooms
from appliance.daemon.standing import state_of
from appliance.gateway.ports import Ports
from appliance.routing import COLD
from appliance.settings import Settings


class HostSide:
    """Implements `appliance.gateway.ports.Host`."""

    def __init__(self, rooms: Rooms) -> None:
        self._rooms = rooms

    def settings(self) -> Settings:
        return self._rooms.library.settings

    def health(self) -> Mapping[str, Any]:
        """`ok` when a request can be served here, be it after a load, else the state of the default model in
        one word.
        """
        rooms, default = self._rooms, self._rooms.pool.default
        status, ref = "absent", None
        if default is not None:
            ref, here = default.ref.ref, default.ref.ref in rooms.here.refs
            loadable = here and rooms.library.settings.models.on_demand and not rooms.pool.halted
            status = state_of(default, loadable=loadable, now=time.monotonic())
        if status in ("ready", "busy", COLD):
            status = "ok"
        elif status == "absent" and rooms.downloads.running():
            status = "downloading"
        return {"status": status, "model": ref}

    def ports(self) -> Ports:
        rooms = self._rooms
        return Ports(
            rooms.local, rooms.remotes, rooms.journal, self, rooms.prompts.privacy, rooms.recorder,
            machine=lambda: rooms.monitor.snapshot, requests=rooms.awake.count,
        )  # fmt: skip
