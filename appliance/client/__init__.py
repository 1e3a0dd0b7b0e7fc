"""The one door to a running daemon, for the command line and the terminal UI.

Standard library only and quick to import, so that `appliance status` stays quick; the rows of the
smaller documents are in `appliance.client.library`, imported with the first call that returns them.
"""

from __future__ import annotations

from appliance.client.documents import (
    DaemonRow,
    DeviceRow,
    GpuRow,
    HostRow,
    ModelRow,
    NoteRow,
    PlanDocument,
    QueueRow,
    ReasonRow,
    RemoteRow,
    RequestRow,
    TodayRow,
)
from appliance.client.door import Client
from appliance.client.engine_rows import AdapterRow, CrashRow, EngineRow, UsedDevice
from appliance.client.status import StatusSnapshot
from appliance.client.transfers import DownloadRow, ErrorRow, StartRow

__all__ = [
    "AdapterRow",
    "Client",
    "CrashRow",
    "DaemonRow",
    "DeviceRow",
    "DownloadRow",
    "EngineRow",
    "ErrorRow",
    "GpuRow",
    "HostRow",
    "ModelRow",
    "NoteRow",
    "PlanDocument",
    "QueueRow",
    "ReasonRow",
    "RemoteRow",
    "RequestRow",
    "StartRow",
    "StatusSnapshot",
    "TodayRow",
    "UsedDevice",
]
