"""After engines were stopped: wait until their memory is really free, and say so when it is not.

A driver gives memory back some time after the process has ended. A load that begins too early runs out of it,
though each model alone would fit.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping

from appliance.operations.machine.survey import Survey
from appliance.units import size

log = logging.getLogger("appliance.serving")

WAIT_S = 10.0
PAUSE_S = 0.25
BACK = 0.9
"""Of what the engines took as planned: drivers keep crumbs."""


def missing(
    before: Mapping[str, int | None], now: Mapping[str, int | None], freed: Mapping[str, int]
) -> dict[str, int]:
    """Bytes of each device that have not come back. Pure; what is unknown is taken to be back."""
    found = {}
    for place, n_bytes in freed.items():
        was, is_ = before.get(place), now.get(place)
        if was is None or is_ is None or n_bytes <= 0:
            continue
        lack = int(n_bytes * BACK) - (is_ - was)
        if lack > 0:
            found[place] = lack
    return found


def free_of(looked: Survey) -> dict[str, int | None]:
    """Free bytes of each GPU. Devices made of the CPU always tell the same, and are left out."""
    if looked.choice is None:
        return {}
    return {device.name: device.free for device in looked.devices() if not device.software}


async def memory_returned(
    before: Survey, freed: Mapping[str, int], look: Callable[[], Awaitable[Survey]], wait_s: float = WAIT_S
) -> Survey:
    """The first look in which the memory is back, or the last one after `wait_s`.

    `freed`: bytes by device name that the stopped engines held as planned.
    """
    was, until = free_of(before), time.monotonic() + wait_s
    while True:
        looked = await look()
        lack = missing(was, free_of(looked), freed)
        if not lack or time.monotonic() >= until:
            break
        await asyncio.sleep(PAUSE_S)
    for place, n_bytes in lack.items():
        log.warning("%s of %s have not come back; the plan counts with what is free", size(n_bytes), place)
    return looked
