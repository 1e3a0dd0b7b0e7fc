"""One download as the control plane shows it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from appliance.errors import ApplianceError
from appliance.store import Progress, Repaired

State = Literal["waiting", "running", "paused", "done", "failed", "cancelled"]
"""Ours; while it runs, the store's phase says more."""
FINISHED: tuple[State, ...] = ("done", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class Download:
    """One transfer and where it stands. Its id stays the same over pause, resume and a new daemon."""

    id: str
    progress: Progress
    state: State = "waiting"
    place: int | None = None
    """While it waits: 1 is the next one to start."""
    limit: int | None = None
    """Bytes per second at most; None = what the settings say."""
    repair: bool = False
    """It mends a model that is here; what is right is not fetched."""
    repaired: Repaired | None = None
    """What a finished repair came to."""
    error: ApplianceError | None = None
    """Why the state is `failed`."""

    @property
    def ref(self) -> str:
        return self.progress.ref

    @property
    def finished(self) -> bool:
        return self.state in FINISHED

    @property
    def phase(self) -> str:
        """The store's phase while it runs, else the state. A part of the work that ends is no end."""
        if self.state != "running":
            return self.state
        return "verifying" if self.progress.phase in FINISHED else self.progress.phase

    @property
    def message(self) -> str | None:
        """What else a person should know now."""
        match self.state:
            case "running":
                return self.progress.message
            case "waiting":
                return None if self.place is None else f"place {self.place} in the queue"
            case "failed":
                return self.error.message if self.error else None
            case "paused" | "cancelled":
                return _kept(self.progress)
            case _:
                return None

    def turned(self, state: State, **changes: Any) -> Download:
        """In another state: speed and time left are those of a running transfer only."""
        still = replace(self.progress, rate=None, eta_s=None, message=None)
        return replace(self, **{"state": state, "progress": still, "place": None, "error": None, **changes})

    def to_json(self) -> dict[str, Any]:
        """The row of `/api/downloads` and of the status. Unknown is null."""
        p, mended = self.progress, self.repaired
        return {
            "id": self.id, "ref": p.ref, "file": p.file, "phase": self.phase, "done": p.done,
            "total": p.total, "rate": p.rate, "eta_s": p.eta_s, "resumable": p.resumable,
            "paused": self.state == "paused", "finished": self.finished, "place": self.place,
            "limit": self.limit, "repair": self.repair, "message": self.message,
            "fetched": mended.fetched if mended else None, "mended": mended.mended if mended else None,
            "damage": [item.to_json() for item in mended.damage] if mended else None,
            "error": self.error.to_json() if self.error else None,
        }  # fmt: skip


def _kept(progress: Progress) -> str:
    if progress.resumable:
        return "what has arrived is kept"
    return "this source starts over"
