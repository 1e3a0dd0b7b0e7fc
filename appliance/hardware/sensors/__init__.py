"""What sensors say: pure looks at one device each, as values. Who looks, and how often, is the monitor's."""

from appliance.hardware.sensors.values import (
    REASONS,
    Counter,
    CpuSample,
    GpuSample,
    MemorySource,
    Sample,
    identity,
    reason_names,
)

__all__ = [
    "REASONS",
    "Counter",
    "CpuSample",
    "GpuSample",
    "MemorySource",
    "Sample",
    "identity",
    "reason_names",
]
