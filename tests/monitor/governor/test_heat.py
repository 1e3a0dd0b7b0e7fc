"""All devices together: whose heat counts for what, and when batch work waits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from appliance.hardware.sensors import CpuSample, GpuSample, Sample, identity
from appliance.monitor import MonitorSnapshot, Pressure, pressure_on
from appliance.monitor.governor import CPU, DeviceHeat, Heat, Reading, Rule, speed_key
from appliance.monitor.governor.readings import of_cpu, of_gpu, of_sample
from appliance.monitor.snapshot import gpu_view

KEY = speed_key("m", "p", "ac", streams=1, tokens=100)
RULE = Rule(hold=5.0, dwell=60.0)
HOT, WELL = Reading(1.0), Reading(30.0)


def usual(heat: Heat, speed: float = 50.0, places: frozenset[str] = frozenset({"GPU-1"})) -> None:
    for _ in range(5):
        heat.observe(KEY, speed, places, 0.0)


def test_a_slow_gpu_is_throttled_and_the_cpu_beside_it_is_not() -> None:
    heat = Heat(RULE)
    heat.take({"GPU-1": WELL, CPU: WELL}, 0.0)
    usual(heat)
    heat.take({"GPU-1": HOT, CPU: HOT}, 1.0)
    for _ in range(3):
        heat.observe(KEY, 25.0, {"GPU-1"}, 2.0)
    changes = heat.take({"GPU-1": HOT, CPU: HOT}, 3.0)
    assert [(one.device, one.before, one.after) for one in changes] == [("GPU-1", "warm", "throttled")]
    assert changes[0].why == (
        "1 °C to its threshold; decode is at 50% of its usual speed, under the limit of 80%"
    )
    view = heat.view(3.0)
    assert (view.thermal, view.factor) == ("throttled", 0.5)
    cpu = view.devices[CPU]
    assert (view.devices["GPU-1"].factor, cpu.state, cpu.factor) == (0.5, "warm", 1)
    assert view.eases == "heat slows the machine"


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        ({"GPU-1"}, Pressure("throttled", 0.5)),
        ({CPU}, Pressure("warm", 1.0)),
        ({"GPU-1", CPU}, Pressure("throttled", 0.5)),
        ((), Pressure("throttled", 0.5)),
        ({"GPU-9"}, Pressure("throttled", 0.5)),
    ],
)
def test_throttled_counts_for_what_runs_there(places: set[str], expected: Pressure) -> None:
    """Places that nobody knows count as the whole machine."""
    devices = {"GPU-1": DeviceHeat("throttled", factor=0.5), CPU: DeviceHeat("warm")}
    assert pressure_on(MonitorSnapshot(thermal="throttled", factor=0.5, devices=devices), places) == expected


def test_a_device_in_danger_counts_for_all() -> None:
    """And is named, with what is known of it and when it may end."""
    hot = DeviceHeat("critical", factor=0.5, ends_in_s=60.0)
    gpu = GpuSample("GPU-1", 0, "RTX", "cuda", temperature=97.0, slowdown_at=94.0)

    def seen(gpu: GpuSample, heat: DeviceHeat) -> MonitorSnapshot:
        devices = {"GPU-1": heat, CPU: DeviceHeat("cool")}
        view = gpu_view(gpu, heat, 0.0, set())
        return MonitorSnapshot(gpus=(view,), thermal="critical", factor=0.5, devices=devices)

    at_limit = pressure_on(seen(gpu, hot), {CPU})
    assert at_limit == Pressure("critical", 1.0, "RTX is critically hot, at 97 °C (limit 94)", 60.0)
    cooling = pressure_on(seen(replace(gpu, temperature=70.0), replace(hot, ends_in_s=20.0)), {CPU})
    assert cooling.why == (
        "RTX was critically hot and has to stay cool for a while; it is at 70 °C (limit 94)"
    )
    assert cooling.ends_in_s == 20.0
    blind = pressure_on(seen(identity(gpu), replace(hot, readable=False, ends_in_s=600.0)), {CPU})
    assert blind.why == "RTX was critically hot, and its sensors can't be read now"


def test_a_device_that_never_told_anything_has_no_say() -> None:
    heat = Heat(RULE)
    heat.take({"GPU-1": WELL, "pci:igpu": Reading()}, 0.0)
    assert heat.view(0.0).thermal == "cool"
    assert heat.view(0.0).devices["pci:igpu"].state == "unknown"


def test_a_machine_that_would_soon_be_at_its_threshold_lets_batch_wait_for_the_dwell() -> None:
    heat = Heat(RULE)
    for second in range(12):
        heat.take({"GPU-1": Reading(40.0 - 2 * second)}, float(second))
    assert heat.view(11.0).eases == (
        "the machine got hot so fast that it would have been at its limit within 20.0 s"
    )
    assert heat.view(11.0).thermal == "cool"
    for second in range(12, 75):
        heat.take({"GPU-1": Reading(18.0)}, float(second))
    assert heat.view(69.0).eases is not None
    assert heat.view(75.0 + RULE.dwell).eases is None


def test_a_cpu_that_rises_to_its_limit_lets_nothing_wait() -> None:
    """It does so in each burst."""
    heat = Heat(RULE)
    for second in range(30):
        heat.take({CPU: Reading(40.0 - 2 * second, alarms=False)}, float(second))
    assert heat.view(30.0).eases is None
    assert heat.view(30.0).thermal == "warm"


def test_what_is_forgotten_counts_no_more_and_speeds_stay() -> None:
    heat = Heat(RULE)
    usual(heat)
    for second in range(10):
        heat.take({"GPU-1": Reading(-1.0)}, float(second))
    assert heat.view(10.0).thermal == "critical"
    heat.forget(["GPU-1"])
    assert (heat.view(10.0).thermal, heat.view(10.0).devices) == ("unknown", {})
    assert heat.baseline(KEY) is not None


def test_what_was_critical_when_it_was_left_and_still_is_hot_need_not_prove_it_again() -> None:
    heat = Heat(RULE)
    for second in range(6):
        heat.take({"GPU-1": Reading(-3.0)}, float(second))
    heat.forget()
    heat.take({"GPU-1": Reading(-3.0)}, 100.0)
    assert heat.view(100.0).thermal == "critical"
    heat.forget()
    heat.take({"GPU-1": Reading(30.0)}, 200.0)
    assert heat.view(200.0).thermal == "cool"
    heat.forget()
    heat.take({"GPU-1": Reading(-3.0)}, 300.0)
    assert heat.view(300.0).thermal == "warm"


def test_a_device_that_does_not_count_is_shown_by_itself_only() -> None:
    heat = Heat(RULE)
    heat.count(frozenset({"GPU-1", CPU}))
    for second in range(10):
        heat.take({"GPU-1": WELL, "GPU-2": Reading(-1.0)}, float(second))
    view = heat.view(10.0)
    assert (view.thermal, view.eases, view.devices["GPU-2"].state) == ("cool", None, "critical")
    heat.count(None)
    assert heat.view(10.0).thermal == "critical"


def test_the_number_of_devices_is_bounded() -> None:
    heat = Heat(RULE)
    for number in range(100):
        heat.take({f"GPU-{number}": WELL}, float(number))
    assert len(heat.view(100.0).devices) == 64


def test_readings_of_a_gpu_take_its_thermal_counters_only() -> None:
    counters = {"sw_thermal": 5, "hw_thermal": 7, "policy_thermal": 9, "power_cap": 100, "sync_boost": 3}
    gpu = GpuSample("GPU-1", 0, "G", "cuda", headroom=4.0, margin=2.0, reasons=0x20, counters=counters)  # type: ignore[arg-type]
    assert of_gpu(gpu) == Reading(4.0, 2.0, 0x20, 12)
    only_policy = GpuSample("GPU-1", 0, "G", "cuda", counters={"policy_thermal": 9, "power_cap": 1})
    assert of_gpu(only_policy).slowed_ns == 9
    assert of_gpu(GpuSample("GPU-1", 0, "G", "cuda", counters={"power_cap": 1})).slowed_ns is None


def test_a_cpu_is_in_danger_only_where_the_system_would_shut_down() -> None:
    assert of_cpu(CpuSample(temperature=97.0, high_at=95.0, critical_at=105.0)) == Reading(-2.0, alarms=False)
    assert of_cpu(CpuSample(temperature=106.0, high_at=95.0, critical_at=105.0)) == Reading(-1.0)
    assert of_cpu(CpuSample(temperature=100.0, high_at=100.0, critical_at=100.0)) == Reading(
        0.0, alarms=False
    )
    assert of_cpu(CpuSample(temperature=99.0)) == Reading(alarms=False)
    assert of_cpu(CpuSample(throttled_ns=3)) == Reading(slowed_ns=3, alarms=False)
    assert not of_cpu(CpuSample(temperature=99.0)).known


def test_all_devices_of_a_sample() -> None:
    gpus = (GpuSample("GPU-1", 0, "G", "cuda", headroom=4.0), GpuSample("GPU-2", 1, "H", "cuda"))
    found = of_sample(Sample(gpus, CpuSample(temperature=50.0, high_at=90.0)))
    assert found == {"GPU-1": Reading(4.0), "GPU-2": Reading(), CPU: Reading(40.0, alarms=False)}
    assert of_sample(Sample()) == {}
