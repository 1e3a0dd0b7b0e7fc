"""From what the sensors say to what the governor is told."""

from __future__ import annotations

from appliance.hardware.sensors import CpuSample, GpuSample, Sample
from appliance.monitor.governor.values import CPU, Reading


def of_gpu(gpu: GpuSample) -> Reading:
    """A GPU's slowdown threshold is where its hardware saves itself."""
    return Reading(gpu.headroom, gpu.margin, gpu.reasons, slowed_ns(gpu))


def of_cpu(cpu: CpuSample) -> Reading:
    """A CPU's limit is where it begins to slow down; only what would shut the system down is an alarm."""
    if cpu.temperature is None:
        return Reading(slowed_ns=cpu.throttled_ns, alarms=False)
    apart = cpu.critical_at is not None and (cpu.high_at is None or cpu.critical_at > cpu.high_at)
    if apart and cpu.critical_at is not None and cpu.temperature >= cpu.critical_at:
        return Reading(cpu.critical_at - cpu.temperature, slowed_ns=cpu.throttled_ns)
    headroom = None if cpu.high_at is None else cpu.high_at - cpu.temperature
    return Reading(headroom, slowed_ns=cpu.throttled_ns, alarms=False)


def of_sample(sample: Sample) -> dict[str, Reading]:
    """By device: a GPU's id, or `cpu`."""
    found = {gpu.id: of_gpu(gpu) for gpu in sample.gpus}
    if sample.cpu is not None:
        found[CPU] = of_cpu(sample.cpu)
    return found


def slowed_ns(gpu: GpuSample) -> int | None:
    """How long heat has held its clocks down: by the software's and the hardware's counter, which take turns;
    else by that of the performance policy, which may run beside either.
    """
    counters = gpu.counters or {}
    known = [counters[name] for name in ("sw_thermal", "hw_thermal") if name in counters]
    return sum(known) if known else counters.get("policy_thermal")
