"""What the gateway needs from the daemon, as protocols: the gateway owns no engine, no remote and no file.

The daemon implements them; the tests implement them over fake upstreams. Everything that is asked here
answers at once (snapshots), so that a decision never waits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from appliance.engines.slots.privacy import Privacy

if TYPE_CHECKING:
    from appliance.engines import Endpoint
    from appliance.gateway.admission import Admission
    from appliance.journal import Row
    from appliance.journal.timeline import Moment
    from appliance.monitor import MonitorSnapshot
    from appliance.routing import Decision, Features, LocalView, RemoteView, View
    from appliance.settings import Settings

ReportedOutcome = Literal["ok", "refused", "timeout", "reset", "5xx", "4xx", "cancelled"]
"""What a remote's breaker learns about one request."""


@dataclass(frozen=True, slots=True)
class Served:
    """A model name of a request, resolved."""

    id: str
    """Catalog id, `smollm2-135m-instruct`."""
    ref: str
    """Id and quant, `smollm2-135m-instruct:Q4_1`."""
    use: tuple[str, ...]
    """What the catalog says it is for: chat code reasoning vision embedding rerank."""
    here: bool
    """Its files lie on this disk and were verified."""
    degraded: tuple[str, ...] = ()
    """What resolving already gave up: `other_quant`, `other_model`."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a local generation ended, for the speed baseline. Unknown is None."""

    tokens_in: int | None
    tokens_out: int | None
    tokens_per_second: float | None
    """Decode speed of this request alone."""
    ttft_s: float | None
    """From the start of the upstream request to the first delta: queue wait not included."""
    running: int
    """Requests inside the engine when this one started, itself included."""
    ok: bool
    streams: int | None = None
    """The most that ran there at once while this one did, itself included."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What the speed of a local reply depends on beside the model. Unknown is None."""

    thermal: str | None = None
    """`cool warm throttled critical`."""
    power: Literal["ac", "battery"] | None = None
    plan: str | None = None
    """Short text key of the plan."""
    places: tuple[str, ...] = ()
    """Where the engine works: ids of GPUs, `cpu`. Empty while unknown."""


class Held(Protocol):
    """One request inside the engine, for who watches that the engine lives."""

    def beat(self) -> None:
        """A piece of the reply has arrived."""
        ...

    def worked(self) -> None:
        """The reply is whole."""
        ...

    def suspect(self) -> None:
        """It ended with an error of the engine's own, or nothing came in time."""
        ...


class Local(Protocol):
    """The local side: catalog, pool of engines, admission."""

    def resolve(self, name: str | None) -> Served:
        """The model that `name` means (id, id:QUANT, family, alias; None = the served one).

        Called in the event loop with each request: it must not touch the disk.
        Raises appliance.errors.UnknownModel with the nearest names in `hint`.
        """
        ...

    def view(self, served: Served) -> LocalView | None:
        """The router's picture of the local side for this model; None when it can't serve it at all.

        The gateway itself fills in what it has measured (`prefill_s`, `decode_s`, `decode_per_s`).
        """
        ...

    def wanted(self, served: Served) -> AbstractContextManager[object]:
        """Held while a request wants this model here, from before its queue to its end.

        It is what a cold model is loaded for; when nobody holds it any more, a load that was begun for it is
        given up.
        """
        ...

    def missed(self, served: Served) -> None:
        """A request for this model went to a remote since it is not loaded: it may be loaded beside the
        others, for the next one."""
        ...

    def endpoint(self, served: Served) -> Endpoint | None:
        """Where the ready engine of this model listens; None unless it is ready."""
        ...

    async def ready(self, served: Served) -> Endpoint | None:
        """Waits while the engine starts or loads; None when it failed or none is wanted.

        The caller holds a place in the queue meanwhile and may be cancelled at any time.
        """
        ...

    def admission(self, served: Served) -> Admission | None:
        """The queue in front of that engine; None when there is no engine for it.

        It exists from the moment the engine is being started: requests wait in it while it loads.
        """
        ...

    def busy(self, served: Served) -> AbstractContextManager[Held | None]:
        """Counts one request inside the engine while the block runs; None where nobody watches the engine.

        Raises EngineUnavailable when it has just stopped being ready.
        """
        ...

    def degraded(self, served: Served) -> tuple[str, ...]:
        """Codes that hold for a local answer now (cpu_fallback, fewer_layers, throttled, ...)."""
        ...

    def finished(self, served: Served, outcome: Outcome) -> None:
        """A local generation ended."""
        ...

    def conditions(self, served: Served) -> Conditions:
        """How the machine is now, for the journal."""
        ...

    def models(self) -> Sequence[Served]:
        """The models on this disk, the served one first. `/v1/models` lists those of them that a request
        gets an answer for: the served one, and what a remote would take instead (`Gate.answers`).

        Called in the event loop with each such request, and by `/metrics`: it must not touch the disk.
        """
        ...


class RemoteTarget(Protocol):
    """One remote endpoint."""

    @property
    def name(self) -> str:
        """Its name in the settings."""
        ...

    @property
    def base_url(self) -> str:
        """With the version part, without a slash at the end: `http://10.0.0.5:8000/v1`."""
        ...

    def translate(self, path: str, body: dict[str, Any], *, local_id: str) -> dict[str, Any]:
        """The body in the remote's words, its model name included; `path` is like `/v1/chat/completions`.

        `local_id` is `Served.ref`: a mapping may be by `id` or by `id:QUANT`.

        Raises an ApplianceError (appliance.remotes.Untranslatable) for a field the remote can't honour.
        """
        ...

    def headers(self) -> Mapping[str, str]:
        """Authorization, when it has a key."""
        ...

    def report(self, outcome: ReportedOutcome, *, retry_after_s: float | None = None) -> None:
        """Feeds the breaker. `retry_after_s`: for so long the remote asked to be left alone."""
        ...


class Remotes(Protocol):
    """All remote endpoints."""

    def views(self, served: Served) -> tuple[RemoteView, ...]:
        """The router's picture of each for this model; the gateway fills in `ttft_s` and `finish_s`."""
        ...

    def target(self, name: str) -> RemoteTarget:
        """Raises KeyError for an unknown name."""
        ...


class Journal(Protocol):
    """One row per request."""

    async def record(self, row: Row) -> None:
        """Writes it; a failure is the journal's to report, never the request's."""
        ...


class Recorder(Protocol):
    """Keeps what was decided, and what it was decided from. No text of a request is in it."""

    def decided(
        self,
        request_id: str,
        features: Features,
        view: View,
        decision: Decision,
        *,
        moment: Moment = "first",
        given: Mapping[str, Any] | None = None,
        cause: str = "",
    ) -> None:
        """Called in the event loop with each decision: it must return at once. `given`: what the router was
        told beside it; `cause`: words of a side that failed, which stand in the decision's detail."""
        ...


class Unrecorded:
    """Keeps nothing."""

    def decided(self, request_id: str, features: Features, view: View, decision: Decision, **_: Any) -> None:
        """Nothing."""


@dataclass(frozen=True, slots=True)
class Ports:
    """All of them, as `make_app` takes them."""

    local: Local
    remotes: Remotes
    journal: Journal
    host: Host
    privacy: Privacy = field(default_factory=Privacy)
    """Which slots of engines hold prompts that must not be written."""
    recorder: Recorder = field(default_factory=Unrecorded)
    machine: Callable[[], MonitorSnapshot | None] = lambda: None
    """The monitor's snapshot, for `/metrics`."""
    requests: Callable[[int], None] = lambda count: None
    """Told how many inference requests are here, running or waiting, whenever that changes."""


class Host(Protocol):
    """The daemon itself."""

    def settings(self) -> Settings:
        """The settings in force now: they may change while the daemon runs."""
        ...

    def health(self) -> Mapping[str, Any]:
        """The body of `/health`. Its `status` is `ok` (200) or another word, like `loading` (503)."""
        ...
