"""How a candidate's layers may be spread over several GPUs, in the order in which it is tried."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from appliance.planning.choice.candidate import Candidate, Estimate
from appliance.planning.choice.estimate import Estimator, driver_overhead
from appliance.units import MIB


def room_of(estimator: Estimator, index: int) -> int | None:
    """Bytes that may be taken of a device; None: free memory is unknown, and it is taken to be enough."""
    device, request = estimator.devices[index], estimator.request
    limit = request.limits.get(device.name)
    if device.free is None:
        return limit
    room = device.free + device.ours - request.reserve
    return room if limit is None else min(room, limit)


def host_room(estimator: Estimator) -> int | None:
    """The same of RAM."""
    host, request = estimator.host, estimator.request
    limit = request.limits.get("Host")
    if host.available is None:
        return limit
    room = host.available + host.ours - request.reserve
    return room if limit is None else min(room, limit)


def fits(estimator: Estimator, estimate: Estimate) -> bool:
    """Whether everything fits beside the reserve. What is unknown is taken to fit; the plan says so."""
    return devices_fit(estimator, estimate) and host_fits(estimator, estimate)


def devices_fit(estimator: Estimator, estimate: Estimate) -> bool:
    """Whether the devices' part fits, and none of them gets a tensor that it can't take."""
    if estimate.refused is not None:
        return False
    for index, used in enumerate(estimate.devices):
        room = room_of(estimator, index)
        if used.total and room is not None and used.total > room:
            return False
    return True


def host_fits(estimator: Estimator, estimate: Estimate) -> bool:
    """Whether the part in RAM fits."""
    room = host_room(estimator)
    return room is None or estimate.host.total <= room


def could_fit(estimator: Estimator, candidate: Candidate) -> bool:
    """False when weights and caches alone are more than all devices together have room for. Quick."""
    if not estimator.devices or not candidate.gpu_layers:
        return True
    rooms = [room_of(estimator, index) for index in range(len(estimator.devices))]
    known = [
        max(room - driver_overhead(device, estimator.learned(device.name)), 0)
        for room, device in zip(rooms, estimator.devices, strict=True)
        if room is not None
    ]
    return len(known) < len(rooms) or estimator.at_least(candidate) <= sum(known)


def spread(estimator: Estimator, candidate: Candidate) -> Iterator[Candidate]:
    """The candidate with each way to share its layers: one card alone (no transfer between cards, and the
    others stay free), all of them by room, and each filled before the next.

    The last way fits whenever any split into whole layers in this order does, so that more memory never means
    fewer layers.
    """
    count = len(estimator.devices)
    if count == 0 or candidate.gpu_layers == 0:
        yield replace(candidate, shares=())
        return
    if count == 1:
        yield replace(candidate, shares=(1,))
        return
    by_room = replace(candidate, shares=_by_room(estimator))
    if estimator.request.split == "layer":
        need = estimator.at_least(candidate)
        for index in sorted(range(count), key=lambda i: -(room_of(estimator, i) or 0)):
            room = room_of(estimator, index)
            if room is None or need <= room:
                yield replace(candidate, shares=tuple(int(index == other) for other in range(count)))
    yield by_room
    if estimator.request.split == "layer" and (filled := _filled(estimator, by_room)) is not None:
        yield filled


def default_spread(estimator: Estimator, candidate: Candidate) -> Candidate:
    """All devices by room: for a candidate that is only talked about."""
    if not estimator.devices or candidate.gpu_layers == 0:
        return replace(candidate, shares=())
    return replace(candidate, shares=_by_room(estimator))


def counts(estimator: Estimator, candidate: Candidate) -> tuple[int, ...]:
    """Layers on each device that takes part, the output head included; as `-ts` takes them."""
    placement = estimator.placement(candidate)
    places = (*placement.blocks, placement.output)
    return tuple(places.count(place) for place in range(placement.n_devices))


def _by_room(estimator: Estimator) -> tuple[int, ...]:
    rooms = [room_of(estimator, index) for index in range(len(estimator.devices))]
    shares = [
        (device.total or 1) if room is None else max(room, 0)
        for device, room in zip(estimator.devices, rooms, strict=True)
    ]
    scaled = tuple(-(-share // MIB) for share in shares)
    return scaled if any(scaled) else (1,) * len(scaled)


def _filled(estimator: Estimator, candidate: Candidate) -> Candidate | None:
    """Each device takes as many layers as it holds, in order; None when they don't all get a place."""
    fixed = estimator.estimate(candidate)
    load, used_devices = estimator.load(candidate), estimator.used(candidate)
    beside = dict(zip(used_devices, estimator.beside(candidate)[0], strict=True))
    n_layer, caches = estimator.shape.n_layer, estimator.sums.caches(load)
    item, shares = n_layer + 1 - candidate.gpu_layers, []
    for index, device in enumerate(estimator.devices):
        whole = estimator.sums.blocks_on(device.max_tensor)
        without = estimator.sums.blocks_on(device.max_tensor, experts=False)
        room = room_of(estimator, index)
        used = fixed.devices[index]
        left = None if room is None else room - used.compute - used.overhead - estimator.weights.everywhere
        if left is not None and index in beside:
            left -= beside[index].model + beside[index].kv  # its compute is in `used`
        taken = 0
        while item <= n_layer:
            if item == n_layer:
                size = estimator.weights.output_on(device.max_tensor)
            else:
                size = (without if item < candidate.cpu_moe else whole)[item] + caches[item]
            if left is not None:
                if size > left:
                    break
                left -= size
            item, taken = item + 1, taken + 1
        shares.append(taken)
    return replace(candidate, shares=tuple(shares)) if item > n_layer and any(shares) else None
