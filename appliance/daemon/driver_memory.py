"""What the driver says about the devices of a plan: the monitor's GPUs by the engine's device names. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from appliance.hardware import Gpu
from appliance.monitor import GpuView
from appliance.operations.survey import Survey
from appliance.planning import DeviceMemory


def views_by_device(looked: Survey, views: Sequence[GpuView]) -> Mapping[str, GpuView]:
    """The view of each device whose GPU is known beyond doubt: by PCI address, else by a name of its own."""
    by_id = {view.id: view for view in views}
    found = {}
    for device in looked.devices() if looked.choice is not None else ():
        gpu = _gpu_of(device, looked.machine.gpus)
        view = by_id.get(gpu.id) if gpu is not None else None
        if view is not None and not device.software:
            found[device.name] = view
    names = [view.id for view in found.values()]
    return {name: view for name, view in found.items() if names.count(view.id) == 1}


def _gpu_of(device: DeviceMemory, gpus: Sequence[Gpu]) -> Gpu | None:
    if device.pci is not None:
        return next((gpu for gpu in gpus if gpu.pci == device.pci), None)
    same = [gpu for gpu in gpus if gpu.name and gpu.name in device.description]
    return same[0] if len(same) == 1 else None
