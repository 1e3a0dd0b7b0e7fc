"""How fast each side has answered here, and what that means for the next request. No I/O, no clock.

Speeds are sums that fade, tokens over seconds, so that long prompts and replies count for more than short
ones, whose time is mostly overhead. Local figures are kept at usual speed (the router applies the heat factor
itself) and end with the engine process they were measured on. Unknown stays None: nothing is predicted of a
side before its first complete reply.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, field, replace

from appliance.routing import Features, LocalView, RemoteView

_FADE = 0.8
"""Of what was known before, at each new reply."""
_WEIGHT = 0.3
"""Of the newest value in a moving average."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What one complete reply shows. Unknown is None."""

    prompt_tokens: int | None
    """All of the prompt, cached or not: a chat whose past lies in the prompt cache counts as fast."""
    prefill_s: float | None
    """Inside the engine, where it says so; else the time to the first token."""
    ttft_s: float | None
    """From the upstream request to the first delta."""
    tokens_out: int | None
    decode_per_s: float | None


@dataclass(slots=True)
class _Rate:
    """Tokens over seconds, fading."""

    tokens: float = 0.0
    seconds: float = 0.0

    def learn(self, tokens: float, seconds: float) -> None:
        if tokens > 0 and 0 < seconds < math.inf:
            self.tokens = self.tokens * _FADE + tokens
            self.seconds = self.seconds * _FADE + seconds

    @property
    def per_s(self) -> float | None:
        return self.tokens / self.seconds if self.seconds > 0 else None


@dataclass(slots=True)
class _Figures:
    """Of one model on one side."""

    incarnation: Hashable = None
    prefill: _Rate = field(default_factory=_Rate)
    decode: _Rate = field(default_factory=_Rate)
    ttft_s: float | None = None

    def learn(self, seen: Sample, scale: float) -> None:
        """`scale` turns seconds of then into seconds at usual speed."""
        if seen.prompt_tokens is not None and seen.prefill_s is not None:
            self.prefill.learn(seen.prompt_tokens, seen.prefill_s * scale)
        # The first token belongs to the prefill: one alone says nothing about decode.
        if seen.tokens_out is not None and seen.tokens_out > 1 and seen.decode_per_s:
            self.decode.learn(seen.tokens_out, seen.tokens_out / seen.decode_per_s * scale)
        if seen.ttft_s is not None:
            self.ttft_s = _average(self.ttft_s, seen.ttft_s * scale)


class Speeds:
    """What was measured, by model and side. Models and remotes are few, and named by the settings."""

    def __init__(self) -> None:
        self._local: dict[str, _Figures] = {}
        self._remote: dict[tuple[str, str], _Figures] = {}
        self._outputs: dict[str, float] = {}
        """Model -> tokens of a usual reply, from whichever side."""

    def observe_local(self, ref: str, seen: Sample, *, factor: float, incarnation: Hashable) -> None:
        """A complete local reply. `factor`: the heat factor while it ran, 1 when it had none.

        `incarnation` names the engine process; figures of another one are dropped, for its plan may differ.
        """
        figures = self._of(ref, incarnation) or _Figures(incarnation)
        self._local[ref] = figures
        figures.learn(seen, factor)
        self._learn_output(ref, seen)

    def observe_remote(self, name: str, ref: str, seen: Sample) -> None:
        """A complete reply of this remote."""
        self._remote.setdefault((name, ref), _Figures()).learn(seen, 1.0)
        self._learn_output(ref, seen)

    def local(self, ref: str, f: Features, view: LocalView, incarnation: Hashable) -> LocalView:
        """The view with what is known for this request; what is set already stays."""
        figures = self._of(ref, incarnation)
        if figures is None:
            return view
        prefill, decode = figures.prefill.per_s, figures.decode.per_s
        return replace(
            view,
            prefill_s=_first(view.prefill_s, _over(f.prompt_tokens, prefill)),
            decode_s=_first(view.decode_s, self._decode_s(ref, f, decode)),
            decode_per_s=_first(view.decode_per_s, decode),
        )

    def remote(self, ref: str, f: Features, view: RemoteView) -> RemoteView:
        """The same for a remote."""
        figures = self._remote.get((view.name, ref))
        if figures is None:
            return view
        rest = self._decode_s(ref, f, figures.decode.per_s)
        whole = None if figures.ttft_s is None or rest is None else figures.ttft_s + rest
        return replace(
            view, ttft_s=_first(view.ttft_s, figures.ttft_s), finish_s=_first(view.finish_s, whole)
        )

    def _of(self, ref: str, incarnation: Hashable) -> _Figures | None:
        known = self._local.get(ref)
        return known if known is not None and known.incarnation == incarnation else None

    def _learn_output(self, ref: str, seen: Sample) -> None:
        if seen.tokens_out:
            self._outputs[ref] = _average(self._outputs.get(ref), float(seen.tokens_out))

    def _decode_s(self, ref: str, f: Features, per_s: float | None) -> float | None:
        """Seconds for the output that is expected: what replies usually have, or less if less is allowed."""
        if f.kind == "embedding":
            return 0.0
        usual = self._outputs.get(ref)
        return None if usual is None else _over(min(usual, f.max_tokens or math.inf), per_s)


def _average(known: float | None, new: float) -> float:
    return new if known is None else known + _WEIGHT * (new - known)


def _over(tokens: float | None, per_s: float | None) -> float | None:
    return None if tokens is None or per_s is None else tokens / per_s


def _first(own: float | None, measured: float | None) -> float | None:
    return measured if own is None else own
