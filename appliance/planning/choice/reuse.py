"""Whether a chunk of the cache may be moved to another position instead of being worked on again.

The engine does that (`--cache-reuse N`) for a chunk of N tokens that stands elsewhere in the new prompt. Keys
are turned to their new position, but what they and the values took in from the text before them stays: the
reply is another one than without it. So it is off unless the user asks for it, and never on where the cache
can't be moved (`llama_memory_can_shift`), or says it can and would answer with the wrong state.
"""

from __future__ import annotations

from appliance.gguf import Header, ModelShape
from appliance.planning.choice.estimate import Estimator
from appliance.planning.result import Reason
from appliance.planning.values import Projector


def why_none(header: Header, shape: ModelShape, mmproj: Projector | None) -> str | None:
    """Why no chunk may be moved with this model; None: it may."""
    if shape.encoder or not any(shape.cache_layers):
        return "the model has no cache"
    if any(shape.recurrent_layers):
        return "the model keeps a running state, which can't leave out what stood before"
    if shape.n_swa and any(shape.swa_layers):
        return "the model's sliding window keeps only the newest tokens"
    if mmproj is not None:
        return "pictures can't be moved"
    if f"{header.arch}.rope.dimension_sections" in header.metadata or header.arch == "step35":
        return "its positions can't be turned"
    return None if shape.known else "its architecture is not known here"


def tokens(estimator: Estimator) -> int:
    """What the engine is told; 0: no chunk is moved."""
    return 0 if _why_none(estimator) else estimator.request.cache_reuse


def lines(estimator: Estimator) -> tuple[Reason, ...]:
    """What is to be said of a reuse that was asked for."""
    if not estimator.request.cache_reuse:
        return ()
    why = _why_none(estimator)
    if why is not None:
        return (Reason("cache_reuse", f"no chunks of the cache are reused: {why}"),)
    text = f"chunks from {estimator.request.cache_reuse} tokens up are moved within the cache (asked)"
    return (Reason("cache_reuse", f"{text}: replies differ from those without"),)


def _why_none(estimator: Estimator) -> str | None:
    return why_none(estimator.header, estimator.shape, estimator.mmproj)
