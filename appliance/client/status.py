"""The status document: everything a user may want to know about a running appliance, at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from appliance.client.documents import (
    CpuRow,
    DaemonRow,
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
from appliance.client.engine_rows import EngineRow
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
    """The default model first, then as they were used."""
    gpus: tuple[GpuRow, ...]
    cpu: CpuRow | None
    thermal: str | None
    """The worst heat state: cool, warm, throttled, critical or unknown."""
    factor: float | None
    """Measured speed over the baseline; 1.0 is the usual speed."""
    thermal_message: str | None
    eases: str | None
    """Why batch work waits first; None when it need not."""
    power: str | None
    """`ac`, `battery` or `unknown`."""
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
    halted: bool
    """A person stopped all engines: requests load nothing until a person loads a model."""
    raw: Mapping[str, Any] = field(repr=False, compare=False)

    @property
    def engine(self) -> EngineRow | None:
        """The engine of the default model, else the first one, else None."""
        wanted = self.model.ref if self.model else None
        marked = next((e for e in self.engines if e.default), None)
        named = next((e for e in self.engines if e.model == wanted), None)
        return marked or named or (self.engines[0] if self.engines else None)

    @property
    def others(self) -> tuple[EngineRow, ...]:
        """The rows beside `engine`, in their order."""
        main = self.engine
        return tuple(row for row in self.engines if row is not main)

    def engine_of(self, ref: str) -> EngineRow | None:
        """The row of a model; None when it is not loaded, wanted or failed."""
        return next((row for row in self.engines if row.model == ref), None)

    def makes_way_for(self, row: EngineRow) -> str | None:
        """The model that `row` makes way for; None when it makes way for none, or it is not clear for which.

        It is the one that is being loaded or is wanted, and is not there.
        """
        if not row.makes_way:
            return None
        missing = [one for one in self.engines if one is not row and one.queued and not one.serves]
        loading = [one for one in missing if one.state in ("starting", "loading")]
        found = loading or missing
        return found[0].ref if len(found) == 1 else None

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
            cpu=maybe(CpuRow)(doc.get("cpu")),
            thermal=text(doc.get("thermal")),
            factor=number(doc.get("factor")),
            thermal_message=text(doc.get("thermal_message")),
            eases=text(doc.get("eases")),
            power=text(doc.get("power")),
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
            halted=doc.get("halted") is True,
            raw=doc,
        )
