"""What is served now, as everyone else sees it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from appliance.catalog import ModelRef
from appliance.daemon.load_clock import LoadTimes
from appliance.daemon.machine.losses import Loss
from appliance.engines import EngineSnapshot, EngineState
from appliance.errors import ApplianceError, ModelMissing, NotVerified
from appliance.operations.lessons.load_times import Estimate
from appliance.operations.machine.survey import Note, Survey
from appliance.planning import Plan


@dataclass(frozen=True, slots=True)
class ServingSnapshot:
    """What is served now."""

    ref: ModelRef | None = None
    state: EngineState = "absent"
    plan: Plan | None = None
    engine: EngineSnapshot | None = None
    survey: Survey | None = None
    error: ApplianceError | None = None
    """Why the state is `failed`, or `absent` without a person's wish."""
    since: float = 0.0
    """Unix time of the last change of state."""
    loaded_since: float | None = None
    """Unix time of the load that this comes from."""
    replanned: Note | None = None
    """Why the plan was made anew while it served."""
    load_estimate: Estimate | None = None
    """How long the load takes as far as that can be told before; None: nothing is known of it."""
    load_times: LoadTimes | None = None
    """What the last load took."""
    lost: Loss | None = None
    """The GPU that it does without, though an engine had it before."""

    def uses(self, ref: str) -> bool:
        """The engine runs with this model's files, or ended because they are not right."""
        if self.ref is None or self.ref.ref != ref or self.state == "absent":
            return False
        return self.state != "failed" or self._damaged

    def lacks(self, ref: str) -> bool:
        """This model would be served, but its files were damaged, or removed."""
        mine = self.ref is not None and self.ref.ref == ref and self.state in ("failed", "absent")
        return mine and self._damaged

    @property
    def _damaged(self) -> bool:
        return isinstance(self.error, NotVerified | ModelMissing)


def timed(snapshot: ServingSnapshot, estimate: Estimate | None, times: LoadTimes | None) -> ServingSnapshot:
    """The same with what is known of the time that its load takes, or took."""
    return replace(snapshot, load_estimate=estimate, load_times=times)


def load_row(snapshot: ServingSnapshot) -> dict[str, Any]:
    """What the status tells of a load: seconds, and bytes per second from the disk beside what that gives."""
    estimate, times = snapshot.load_estimate, snapshot.load_times
    return {
        "load_estimate_s": None if estimate is None else estimate.seconds,
        "load_estimate_how": None if estimate is None else estimate.how,
        "load_bytes_per_s": None if times is None else times.bytes_per_s,
        "load_cached": None if times is None else times.cached,
        "disk_bytes_per_s": None if times is None else times.disk_bytes_per_s,
    }
