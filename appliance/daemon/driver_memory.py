"""What the driver says about the devices of a plan: the monitor's GPUs by the engine's device names. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from appliance.engines.environment import child_environment
from appliance.monitor import GpuView
from appliance.operations.machine.cards import matched
from appliance.operations.machine.survey import Survey


def views_by_device(looked: Survey, views: Sequence[GpuView]) -> Mapping[str, GpuView]:
    """The view of each device whose GPU is known beyond doubt.

    Among several cards of one name only the PCI address tells; without it they stay unknown here: a lesson
    about the wrong card, or a reload for its sake, costs more than none.
    """
    if looked.choice is None:
        return {}
    devices, gpus = looked.choice.build.devices, looked.machine.gpus
    names = [gpu.name for gpu in gpus]
    by_id = {view.id: view for view in views}
    found = {}
    for device, gpu in zip(devices, matched(devices, gpus, child_environment()), strict=True):
        if gpu is None or gpu.id not in by_id:
            continue
        if names.count(gpu.name) == 1 or (device.pci is not None and device.pci == gpu.pci):
            found[device.name] = by_id[gpu.id]
    return found
