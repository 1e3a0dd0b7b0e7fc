"""Several queues as one, for the status. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from appliance.gateway.admission import QueueSnapshot


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
