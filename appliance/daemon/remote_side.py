"""The gateway's view of the remotes, and the choke that keeps a keyless stranger's prompt here."""

from __future__ import annotations

from appliance.gateway.ports import RemoteTarget, Served
from appliance.remotes import RemotePool
from appliance.routing import RemoteView


class RemoteSide:
    """Implements `appliance.gateway.ports.Remotes` over the pool."""

    def __init__(self, pool: RemotePool) -> None:
        self.pool = pool

    def views(self, served: Served) -> tuple[RemoteView, ...]:
        return tuple(
            RemoteView(offer.name, offer.up, offer.has_model, offer.max_model_len, offer.detail)
            for offer in (remote.offer(served.ref) for remote in self.pool.remotes)
        )

    def target(self, name: str) -> RemoteTarget:
        return self.pool.get(name)
