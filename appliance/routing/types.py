"""What the router is given and what it answers. Values only; None is unknown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from appliance.monitor.governor.baseline import PowerSource
from appliance.monitor.governor.values import ThermalState
from appliance.routing.codes import PASSING

Wish = Literal["auto", "local", "remote"]
Lane = Literal["interactive", "batch"]
Kind = Literal["chat", "completion", "embedding"]
Policy = Literal["local-only", "local-first", "fastest", "remote-only"]
BatteryPolicy = Literal["full", "saver", "remote"]
Target = Literal["local", "remote", "reject"]
Side = Literal["local", "remote"]


@dataclass(frozen=True, slots=True)
class Features:
    """What matters about one request."""

    model: str
    wish: Wish = "auto"
    lane: Lane = "interactive"
    kind: Kind = "chat"
    prompt_tokens: int | None = None
    max_tokens: int | None = None
    keyless_unknown_user: bool = False
    """The caller gave no key and isn't known to be this machine's user: nothing of it leaves."""
    local_fields: tuple[str, ...] = ()
    """Fields in the body that only the local engine honours (`grammar`)."""


@dataclass(frozen=True, slots=True)
class LocalView:
    """The local side now. Times are seconds at usual speed; the router applies the heat factor."""

    state: str
    """The engine's (absent starting loading ready busy stopping failed), or `cold`: a request loads it."""
    slots: int
    running: int
    waiting: int
    max_queue: int
    predicted_wait_s: float | None
    """Until a new request would get a slot."""
    ctx: int | None
    """Tokens of one slot."""
    thermal: ThermalState
    factor: float
    """Measured speed over usual speed; counts only while `throttled`."""
    serves: bool
    """The wanted model is the served one, or can be."""
    prefill_s: float | None = None
    """For this request's prompt."""
    decode_s: float | None = None
    """For this request's expected output."""
    decode_per_s: float | None = None
    """Tokens per second of one reply."""
    detail: str = ""
    """For people: why a failed engine stays down, and what to do about it."""
    load_s: float | None = None
    """Until a model that is cold or loading is ready, as far as that is known."""
    retry_s: float | None = None
    """After a load that failed: until a request loads it again."""
    danger: str = ""
    """While `critical`: which device it is and how hot, as a sentence without its end."""
    danger_s: float | None = None
    """While `critical`: seconds until it may end, at the earliest."""
    eases: str = ""
    """Why batch work waits first, as a clause; empty when it does not."""
    batch_waiting: int = 0
    """Batch requests among those that wait."""
    batch_wait_s: float | None = None
    """While batch work waits first: until a new batch request would start, at usual speed."""
    at_once: int | None = None
    """So many requests run at once while the machine is spared; None: as many as there are slots."""


@dataclass(frozen=True, slots=True)
class RemoteView:
    """One remote now."""

    name: str
    up: bool
    """It answered its last probe and its breaker lets requests through."""
    has_model: bool
    """The wanted model maps to one that it serves."""
    max_model_len: int | None
    """Tokens of prompt and output together."""
    detail: str = ""
    """For people: why it is down."""
    ttft_s: float | None = None
    """Predicted time to first token of this request."""
    finish_s: float | None = None
    """Predicted time until this request is complete."""


@dataclass(frozen=True, slots=True)
class View:
    """The machine at one moment, with the settings that apply."""

    policy: Policy
    max_wait_s: float
    goal_ttft_s: float
    local: LocalView | None
    """None: there is no local side."""
    remotes: tuple[RemoteView, ...] = ()
    """In the order of the settings; the first that can serve is taken."""
    goal_decode_per_s: float | None = None
    """Tokens per second that a reply should have; None: no goal."""
    power: PowerSource = "unknown"
    """What feeds the machine. Unknown counts as mains."""
    battery: BatteryPolicy = "full"
    """What changes while that is a battery."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Where the request goes, and why."""

    target: Target
    reason: str
    """A key of `codes.REASONS`."""
    detail: str
    """One sentence for people, with the numbers."""
    remote: str | None = None
    """The remote's name, when it is the target."""
    status: int | None = None
    """The HTTP status, when rejected."""
    retry_after_s: int | None = None
    """1 to 120, with every 429 and 503."""
    local_finish_s: float | None = None
    """Predicted time to completion here, heat included."""
    remote_finish_s: float | None = None
    """Predicted time to completion on the first remote that could serve."""

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later (`x-should-retry`)."""
        return self.reason in PASSING
