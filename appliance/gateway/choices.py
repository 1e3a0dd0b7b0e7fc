"""The router asked on behalf of one request; each of its answers goes to the recorder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from appliance.gateway.ask import Ask
from appliance.gateway.gate import Gate
from appliance.routing import Decision, Features, Side, View, after_failure, after_wait, decide

if TYPE_CHECKING:
    from appliance.journal.timeline import Moment


class Choices:
    """Of one request."""

    def __init__(self, gate: Gate, ask: Ask, request_id: str) -> None:
        self._gate = gate
        self._ask = ask
        self._request_id = request_id

    def first(self) -> Decision:
        """On arrival."""
        view = self._gate.view(self._ask.served, self._ask.features)
        return self._told(view, decide(self._ask.features, view), "first")

    def waited(self, waited_s: float) -> Decision:
        """Again, for one that waits here; only where it leaves, it is told."""
        view = self._gate.view(self._ask.served, self._ask.features)
        made = after_wait(self._ask.features, view, waited_s)
        if made.target != "local":
            self._told(view, made, "waited", {"waited_s": round(waited_s, 3)})
        return made

    def refused(self, view: View, prompt_tokens: int) -> Decision:
        """Again, once the engine has counted the prompt; only where it leaves, it is told."""
        features = replace(self._ask.features, prompt_tokens=prompt_tokens)
        made = decide(features, view)
        return self._told(view, made, "refused", features=features) if made.target == "remote" else made

    def failed(self, view: View, side: Side, cause: str, remote: str | None) -> Decision:
        """Again, after a side has failed."""
        made = after_failure(self._ask.features, view, side, cause, remote=remote)
        return self._told(view, made, "failed", {"failed": side, "remote": remote}, cause=cause)

    def _told(
        self,
        view: View,
        made: Decision,
        moment: Moment,
        given: Mapping[str, Any] | None = None,
        *,
        features: Features | None = None,
        cause: str = "",
    ) -> Decision:
        self._gate.recorder.decided(
            self._request_id, features or self._ask.features, view, made,
            moment=moment, given=given, cause=cause,
        )  # fmt: skip
        return made
