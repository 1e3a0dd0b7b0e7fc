"""A trace as steps in the order of time, and what a replay of it says. Frozen; None is unknown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from appliance.monitor.governor.values import Change, Reading
from appliance.routing import Features, View

Moment = Literal["first", "waited", "refused", "failed"]
"""When it was decided: on arrival, again after waiting, with a corrected length, after a side failed."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """One device at one moment."""

    device: str
    reading: Reading
    state: str | None = None
    """What the governor of then called it; None where that wasn't recorded."""
    step: int = 1
    """Seconds that it stands for: 60 is the mean of a minute."""


@dataclass(frozen=True, slots=True)
class Spoke:
    """A local reply that tells how fast the machine is."""

    model: str
    plan: str
    tokens_per_second: float
    streams: int = 1
    tokens: int = 500
    """In its context at the end."""
    power: str | None = None
    """What fed the machine then; None: what the trace's own lines say."""
    places: frozenset[str] | None = None
    """Devices that the model runs on; None: all."""


@dataclass(frozen=True, slots=True)
class Usual:
    """How fast a model is when the machine is well, known from earlier days."""

    model: str
    plan: str
    tokens_per_second: float
    streams: int = 1
    tokens: int = 500
    power: str | None = None


@dataclass(frozen=True, slots=True)
class Plugged:
    """What the battery says: on mains or not; None: it can't be read."""

    plugged: bool | None


@dataclass(frozen=True, slots=True)
class Remote:
    """A remote from now on."""

    name: str
    up: bool = True
    models: frozenset[str] | None = None
    """Which it has; None: every one."""
    max_model_len: int | None = None
    ttft_s: float | None = None
    finish_s: float | None = None


@dataclass(frozen=True, slots=True)
class Model:
    """A local model from now on. Times at usual speed."""

    model: str
    state: str = "ready"
    slots: int = 1
    running: int = 0
    waiting: int = 0
    ctx: int | None = None
    predicted_wait_s: float | None = None
    prefill_per_s: float | None = None
    decode_per_s: float | None = None
    load_s: float | None = None
    places: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """A written request: the view comes from the lines before it."""

    features: Features
    request_id: str
    before: str | None = None
    """The reason that it had, where the line says so."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A recorded decision with all that it was made from."""

    request_id: str
    moment: Moment
    features: Features
    view: View | None
    """None: it was not kept."""
    reason: str
    detail: str
    given: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Happened:
    """An event: a load, an eviction, a crash."""

    event: str
    text: str


@dataclass(frozen=True, slots=True)
class Ended:
    """A recorded request that is over and tells no speed. It was decided by a line of its own."""


What = Sampled | Spoke | Usual | Plugged | Remote | Model | Asked | Taken | Happened | Ended


@dataclass(frozen=True, slots=True)
class Step:
    """One thing at one moment."""

    at: float
    what: What
    line: int = 0


@dataclass(frozen=True, slots=True)
class Trace:
    """All steps in the order of time."""

    name: str
    steps: tuple[Step, ...]
    lines: int = 0
    notes: tuple[str, ...] = ()
    """What reading it showed: lines out of order, long silences."""

    @property
    def begins(self) -> float:
        return self.steps[0].at if self.steps else 0.0

    @property
    def ends(self) -> float:
        return self.steps[-1].at if self.steps else 0.0


@dataclass(frozen=True, slots=True)
class Moved:
    """A state of a device, the power source, or the easing of batch work that changed."""

    at: float
    what: str
    """A device, `power` or `batch work`."""
    before: str
    after: str
    why: str

    @staticmethod
    def of(at: float, change: Change) -> Moved:
        return Moved(at, change.device, change.before, change.after, change.why)


@dataclass(frozen=True, slots=True)
class Verdict:
    """One decision, as it was and as it would be now."""

    at: float
    request_id: str
    model: str
    moment: Moment
    before: str | None
    """The recorded reason; None for a written request that states none."""
    before_detail: str | None
    now: str
    now_detail: str
    now_remote: str | None = None

    @property
    def differs(self) -> bool:
        return self.before is not None and self.before != self.now


@dataclass(frozen=True, slots=True)
class Report:
    """What a replay says."""

    trace: Trace
    moved: tuple[Moved, ...] = ()
    seconds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Device -> state -> seconds in it; `not watched` for times without samples."""
    recorded: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """The same by the recorded states, where there are any."""
    verdicts: tuple[Verdict, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def differ(self) -> tuple[Verdict, ...]:
        return tuple(one for one in self.verdicts if one.differs)

    def to_json(self) -> dict[str, Any]:
        """The document of `replay --json`, without what the command adds."""
        trace = self.trace
        return {
            "trace": {
                "name": trace.name, "lines": trace.lines, "steps": len(trace.steps),
                "begins": trace.begins, "ends": trace.ends,
            },
            "changes": [asdict(one) for one in self.moved],
            "seconds": {device: dict(each) for device, each in self.seconds.items()},
            "recorded_seconds": {device: dict(each) for device, each in self.recorded.items()},
            "decisions": [asdict(one) | {"differs": one.differs} for one in self.verdicts],
            "differ": len(self.differ),
            "reasons": {"before": _count(v.before for v in self.verdicts if v.before is not None),
                        "now": _count(v.now for v in self.verdicts)},
            "notes": list(self.notes),
        }  # fmt: skip


def _count(reasons: Any) -> dict[str, int]:
    counts: dict[str, int] = {}
    for reason in reasons:
        counts[reason] = counts.get(reason, 0) + 1
    return dict(sorted(counts.items()))
