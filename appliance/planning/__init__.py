"""From a header and a machine to a plan: layers per device, context, slots, KV type, bytes, and why.

Pure: no I/O, no clock. The whole interface of this room is what is exported here.
"""

from __future__ import annotations

from appliance.planning.flags import Flags, parse_flags
from appliance.planning.measured import apply_measurement, with_memory_of
from appliance.planning.memory.cache import Load, kv_bytes, kv_layer_bytes, state_bytes
from appliance.planning.memory.compute import Era, cpu_compute, era_of, gpu_compute, host_compute
from appliance.planning.plan import make_plan
from appliance.planning.result import MemoryPlan, Plan, Reason, Speed
from appliance.planning.rough import Fit, FitHow, Where, fit_of, rough_fit
from appliance.planning.values import (
    HOST,
    DeviceMemory,
    Holder,
    HostMemory,
    Learned,
    Lora,
    MeasuredRow,
    PlanRequest,
    Pooling,
    Projector,
)
from appliance.planning.whatif import WhatIf, what_if

__all__ = [
    "HOST",
    "DeviceMemory",
    "Era",
    "Fit",
    "FitHow",
    "Flags",
    "Holder",
    "HostMemory",
    "Learned",
    "Load",
    "Lora",
    "MeasuredRow",
    "MemoryPlan",
    "Plan",
    "PlanRequest",
    "Pooling",
    "Projector",
    "Reason",
    "Speed",
    "WhatIf",
    "Where",
    "apply_measurement",
    "cpu_compute",
    "era_of",
    "fit_of",
    "gpu_compute",
    "host_compute",
    "kv_bytes",
    "kv_layer_bytes",
    "make_plan",
    "parse_flags",
    "rough_fit",
    "state_bytes",
    "what_if",
    "with_memory_of",
]
