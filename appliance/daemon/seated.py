"""One model of the pool as the status shows it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from appliance.daemon.pool import Pool, Seat
from appliance.daemon.served import ServingSnapshot
from appliance.gateway.admission import QueueSnapshot


@dataclass(frozen=True, slots=True)
class Seated:
    """A snapshot of a seat. Times are Unix seconds."""

    serving: ServingSnapshot
    queue: QueueSnapshot
    default: bool
    """Requests that name no model go to it."""
    pinned: bool
    wanted: int
    """Requests that want it now, those inside the engine included."""
    makes_way: bool
    """It takes no new request, since another model is wanted and its turn is over."""
    last_used: float
    unload_at: float | None
    """When it is unloaded if no request comes; None: it is not."""
    load_s: float | None
    """How long its last load took."""

    @property
    def shown(self) -> bool:
        """In the list of engines: what is loaded, on its way, failed or wanted, and the default."""
        return self.default or self.wanted > 0 or self.serving.state != "absent"


def seated(pool: Pool, seat: Seat) -> Seated:
    """The seat as it is now."""
    return Seated(
        serving=seat.serving.snapshot,
        queue=seat.queue.snapshot,
        default=pool.default is seat,
        pinned=seat.pinned,
        wanted=seat.wanted,
        makes_way=seat.queue.held,
        last_used=time.time() - (time.monotonic() - seat.last_used),
        unload_at=pool.unload_time(seat),
        load_s=seat.load_s,
    )
