"""The control plane's commands, carried out on the rooms of this daemon: one file per area."""

from __future__ import annotations

from appliance.daemon.commands.builds import BuildCommands
from appliance.daemon.commands.downloads import DownloadCommands
from appliance.daemon.commands.engine import EngineCommands
from appliance.daemon.commands.house import HouseCommands
from appliance.daemon.commands.models import ModelCommands
from appliance.daemon.commands.remotes import RemoteCommands

__all__ = ["Commands"]


class Commands(ModelCommands, DownloadCommands, BuildCommands, EngineCommands, RemoteCommands, HouseCommands):
    """Implements `appliance.gateway.control.Control`."""
