"""The status document: everything a user may want to know about a running appliance, at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from appliance.client.documents import (
    DaemonRow,
    EngineRow,
    GpuRow,
    HostRow,
    ModelRow,
    NoteRow,
    PlanDocument,
    QueueRow,
    RemoteRow,
    RequestRow,
    TodayRow,
)
from appliance.client.fields import mapping, maybe, number, rows, text
from appliance.client.transfers import DownloadRow


@dataclass(frozen=True, slots=True)
class StatusSnapshot:
    """`GET /api/status`, read tolerantly.

    `raw` is the document as it came, for `--json`; show it nowhere else, since only the fields are cleaned.
    """

    daemon: DaemonRow
    model: ModelRow | None
    plan: PlanDocument | None
    engines: tuple[EngineRow, ...]
    gpus: tuple[GpuRow, ...]
    thermal: str | None
    """The worst heat state: cool, warm, throttled, critical or unknown."""
    factor: float | None
    """Measured speed over the baseline; 1.0 is the usual speed."""
    thermal_message: str | None
    queue: QueueRow
    remotes: tuple[RemoteRow, ...]
    downloads: tuple[DownloadRow, ...]
    today: TodayRow
    notes: tuple[NoteRow, ...]
    running: tuple[RequestRow, ...]
    recent: tuple[RequestRow, ...]
    """Newest first."""
    gateway_url: str | None
    host: HostRow
    policy: str | None
    """`routing.policy` of the settings in force."""
    raw: Mapping[str, Any] = field(repr=False, compare=False)

    @property
    def engine(self) -> EngineRow | None:
        """The engine of the served model, else the first one, else None."""
        wanted = self.model.ref if self.model else None
        return next((e for e in self.engines if e.model == wanted), self.engines[0] if self.engines else None)

    @classmethod
    def parse(cls, document: object) -> Self:
        """Read the document; anything missing or odd becomes None or empty."""
        doc = mapping(document)
        requests = mapping(doc.get("requests"))
        return cls(
            daemon=DaemonRow.parse(doc.get("daemon")),
            model=maybe(ModelRow)(doc.get("model")),
            plan=maybe(PlanDocument)(doc.get("plan")),
            engines=rows(EngineRow)(doc.get("engines")),
            gpus=rows(GpuRow)(doc.get("gpus")),
            thermal=text(doc.get("thermal")),
            factor=number(doc.get("factor")),
            thermal_message=text(doc.get("thermal_message")),
            queue=QueueRow.parse(doc.get("queue")),
            remotes=rows(RemoteRow)(doc.get("remotes")),
            downloads=rows(DownloadRow)(doc.get("downloads")),
            today=TodayRow.parse(doc.get("today")),
            notes=rows(NoteRow)(doc.get("notes")),
            running=rows(RequestRow)(requests.get("running")),
            recent=rows(RequestRow)(requests.get("recent")),
            gateway_url=text(mapping(doc.get("gateway")).get("url")),
            host=HostRow.parse(doc.get("host")),
            policy=text(mapping(doc.get("routing")).get("policy")),
            raw=doc,
        )
