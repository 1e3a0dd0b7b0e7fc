"""What is shown of one engine: its state, its snapshot, its log, and the news for who listens.

The owner task in supervisor.py writes here and nobody else does.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from appliance.engines import reports, wire
from appliance.engines.incarnation import Incarnation
from appliance.engines.leases import Leases
from appliance.engines.life import Ending
from appliance.engines.logs import OWN, LogRing, file_of
from appliance.engines.values import Build, CrashReport, Endpoint, EngineSnapshot, EngineState, Launch
from appliance.errors import ApplianceError, EngineFailed
from appliance.paths import Paths

log = logging.getLogger("appliance.engines")

_SHOWN_LINES = 20
_SAID = {"loading": "loading", "stopping": "stopping", "absent": "stopped", "failed": "failed"}


class Shown:
    """State and figures of an engine; `snapshot` is what leaves the room."""

    def __init__(
        self,
        build: Build,
        launch: Launch,
        paths: Paths,
        ring: LogRing,
        on_change: Callable[[EngineSnapshot], None],
    ) -> None:
        self.build, self.launch, self.ring = build, launch, ring
        self.file = file_of(paths, launch.model_id)
        self._on_change = on_change
        self.state: EngineState = "absent"
        self.settled = asyncio.Event()
        """Set with each change of state; who waits for one clears it first."""
        self.life: Incarnation | None = None
        self.leases = Leases()
        self.props = wire.Props(None, None)
        self.speed: float | None = None
        self.restarts = 0
        self.ready_at: float | None = None
        self.error: ApplianceError | None = None
        self.crash: CrashReport | None = None
        self._first_seq = ring.seq
        """Log lines up to here are of an engine before this one."""

    @property
    def ready(self) -> bool:
        return self.state in ("ready", "busy")

    @property
    def endpoint(self) -> Endpoint | None:
        return self.life.endpoint if self.life is not None and self.ready else None

    @property
    def out_of_memory(self) -> str | None:
        """The place whose memory ran out, when that is the error."""
        return self.error.out_of_memory if isinstance(self.error, EngineFailed) else None

    @property
    def snapshot(self) -> EngineSnapshot:
        life, error, loaded = self.life, self.error, self.ready
        return EngineSnapshot(
            id=self.launch.model_id,
            model=self.launch.model_id,
            kind=self.build.kind,
            build=self.build.build,
            pid=life.child.pid if life is not None else None,
            state=self.state,
            gpu_layers=life.gpu_layers if life is not None and loaded else None,
            n_layer=self.launch.plan.n_layer,
            ctx=self.props.ctx if loaded else None,
            parallel=self.props.slots if loaded else None,
            slots_busy=self.leases.count,
            tokens_per_second=self.speed,
            restarts=self.restarts,
            started_at=life.started_at if life is not None else None,
            ready_at=self.ready_at,
            error=error.message if error is not None else None,
            cause=error.cause if error is not None else None,
            hint=error.hint if error is not None else None,
            last_lines=self._last_lines(),
            log_file=str(self.file.path),
            out_of_memory=self.out_of_memory,
            buffers=life.reader.buffers if life is not None else {},
            crash=self.crash,
        )

    def set(self, state: EngineState) -> None:
        """Another state, or news in the same one."""
        if state != self.state and (said := _SAID.get(state)):
            self.say(said)
        self.state = state
        self.settled.set()
        try:
            self._on_change(self.snapshot)
        except Exception:
            log.exception("A listener of the engine failed")

    def follow_leases(self) -> None:
        """`busy` while a request is inside, else `ready`."""
        if self.ready:
            self.set("busy" if self.leases.count else "ready")

    def say(self, text: str) -> None:
        """A line of our own in the engine's log."""
        self.ring.add(OWN + text)
        self.file.write(OWN + text)

    def note(self, error: EngineFailed) -> None:
        """Keep why it ended, with what it said last."""
        error.lines = self._last_lines()
        self.error = error

    def became_ready(self, props: wire.Props, life: Incarnation) -> None:
        self.props, self.ready_at, self.error = props, time.time(), None
        self.leases.begin(life.endpoint.generation)
        self.say(f"ready after {self.ready_at - life.started_at:.1f} s")
        log.info("%s is ready, generation %d", self.launch.model_id, life.endpoint.generation)
        self.set("busy" if self.leases.count else "ready")

    def crashed(self, ending: Ending) -> CrashReport:
        """Keep how a process ended that nobody had stopped."""
        error = ending.error
        self.note(error)
        self.crash = reports.report_of(
            error, ending.exit, self.build, self.launch,
            ready_at=self.ready_at, requests=0 if self.ready_at is None else self.leases.requests,
        )  # fmt: skip
        self.say(" ".join(part for part in (error.message, error.cause) if part))
        log.error("%s: %s", self.launch.model_id, error.message)
        return self.crash

    def _last_lines(self) -> tuple[str, ...]:
        return self.ring.last(_SHOWN_LINES, self._first_seq)
