"""Several queues as one, for the status, and what a person should know of them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from appliance.gateway.admission import QueueSnapshot
from appliance.operations.machine.survey import Note


def together(queues: Sequence[QueueSnapshot], default: QueueSnapshot) -> QueueSnapshot:
    """Counts of all; the predicted wait is that of the default model."""
    lanes: dict[str, int] = dict.fromkeys(default.lanes, 0)
    for queue in queues:
        for lane, count in queue.lanes.items():
            lanes[lane] = lanes.get(lane, 0) + count
    return replace(
        default,
        waiting=sum(queue.waiting for queue in queues),
        running=sum(queue.running for queue in queues),
        lanes=lanes,
        slots=sum(queue.slots for queue in queues),
    )


def batch_notes(queue: QueueSnapshot | None) -> tuple[Note, ...]:
    """That batch work waits, and why; nothing while none does."""
    if queue is None or queue.easing is None or not queue.lanes.get("batch", 0):
        return ()
    detail = f"Batch work waits first ({queue.lanes['batch']} now), since {queue.easing.why}."
    return (Note("batch_waits", detail, None, None),)
