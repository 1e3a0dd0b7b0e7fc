"""Gauges of the machine: valid text, bounded labels, absent when unknown or old."""

from __future__ import annotations

from dataclasses import replace

from prometheus_client.parser import text_string_to_metric_families

from appliance.gateway.machine_metrics import MOST_DEVICES
from appliance.gateway.metrics import Metrics
from appliance.hardware.types import Battery
from appliance.monitor import CpuView, GpuView, MonitorSnapshot

GPU = GpuView(
    "GPU-1", "RTX", "cuda", total=8 << 30, free=2 << 30, used_by_engine=None, temperature=81.0,
    slowdown_at=93.0, reasons=("SwPowerCap",), power=200.5,
    power_limit=None, utilisation=97.0, state="warm", age_s=0.3,
    used=5 << 30, clock=1_740.0, fan=40.0, counters={"sw_thermal": 2_500_000_000, "power_cap": 7},
)  # fmt: skip
CPU = CpuView("i7", 70.0, high_at=95.0, throttled_ns=1_000_000_000, clock=2_800.0, state="cool", age_s=0.3)
SEEN = MonitorSnapshot(
    gpus=(GPU,), cpu=CPU, thermal="warm", factor=0.8, ram_available=5, cpu_percent=25.0, swap_used=0,
    age_s=0.3, battery=Battery(80.0, False), power="battery", active=True, restarts=3,
)  # fmt: skip
Figures = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scraped(seen: MonitorSnapshot | None) -> Figures:
    families = text_string_to_metric_families(Metrics(lambda: seen).render().decode())
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def of(found: Figures, name: str, device: str | None = "GPU-1", **more: str) -> float | None:
    labels = (
        more if device is None else {"device": device, "kind": "cpu" if device == "cpu" else "gpu", **more}
    )
    return found.get((f"appliance_{name}", tuple(sorted(labels.items()))))


def test_every_figure_has_its_device_and_a_base_unit() -> None:
    found = scraped(SEEN)
    assert of(found, "device_temperature_celsius") == 81.0
    assert of(found, "device_slowdown_celsius") == 93.0
    assert of(found, "device_slowdown_celsius", "cpu") == 95.0
    assert of(found, "device_power_watts") == 200.5
    assert of(found, "device_utilisation_ratio") == 0.97
    assert of(found, "device_clock_hertz") == 1.74e9
    assert of(found, "device_clock_hertz", "cpu") == 2.8e9
    assert of(found, "device_memory_used_bytes") == 5 << 30
    assert of(found, "device_memory_bytes") == 8 << 30
    assert of(found, "device_throttled_seconds_total", cause="sw_thermal") == 2.5
    assert of(found, "device_throttled_seconds_total", "cpu", cause="hw_thermal") == 1.0
    states = ("cool", "warm", "throttled", "critical", "unknown")
    assert [of(found, "device_thermal_state", state=state) for state in states] == [0, 1, 0, 0, 0]
    assert [of(found, "thermal_state", None, state=state) for state in states] == [0, 1, 0, 0, 0]
    assert of(found, "speed_factor", None) == 0.8
    assert of(found, "cpu_utilisation_ratio", None) == 0.25
    assert of(found, "swap_used_bytes", None) == 0
    assert (of(found, "battery_ratio", None), of(found, "on_mains", None)) == (0.8, 0.0)
    assert of(found, "sensor_restarts_total", None) == 3.0
    assert of(found, "sensor_age_seconds", None) == 0.3


def test_what_is_unknown_is_absent() -> None:
    found = scraped(SEEN)
    for name in ("memory_temperature_celsius", "power_limit_watts", "memory_engines_bytes"):
        assert of(found, f"device_{name}") is None
    bare = scraped(MonitorSnapshot())
    assert of(bare, "speed_factor", None) == 1.0
    assert not [name for name, _ in bare if "device" in name or "ram" in name or "age" in name]
    assert of(bare, "on_mains", None) is None
    assert not [name for name, _ in scraped(None) if "thermal" in name]


def test_a_factor_of_unknown_heat_is_absent() -> None:
    found = scraped(replace(SEEN, gpus=(replace(GPU, state="unknown"),)))
    assert of(found, "device_speed_factor") is None
    assert of(found, "device_thermal_state", state="unknown") == 1
    assert (of(found, "device_speed_factor", "cpu"), of(scraped(SEEN), "device_speed_factor")) == (1.0, 1.0)


def test_old_readings_are_not_shown_as_fresh_ones() -> None:
    readings = [name for name, _ in scraped(SEEN) if name.startswith("appliance_device_")]
    assert "appliance_device_temperature_celsius" in readings
    for old in (replace(SEEN, stale=True, age_s=40.0), replace(SEEN, active=False, age_s=None)):
        left = {name for name, _ in scraped(old) if name.startswith("appliance_device_")}
        assert left == {
            "appliance_device_thermal_state", "appliance_device_speed_factor",
            "appliance_device_memory_bytes",
        }  # fmt: skip
    assert of(scraped(replace(SEEN, stale=True, age_s=40.0)), "sensor_age_seconds", None) == 40.0
    asleep = replace(SEEN, gpus=(replace(GPU, asleep=True),))
    assert of(scraped(asleep), "device_temperature_celsius") is None
    assert of(scraped(asleep), "device_temperature_celsius", "cpu") == 70.0


def test_labels_are_bounded_and_escaped() -> None:
    odd = 'a"b\\c\nd} 7'
    many = tuple(replace(GPU, id=f"{odd}{number}") for number in range(40))
    found = scraped(replace(SEEN, gpus=many))
    devices = {
        dict(labels)["device"] for name, labels in found if name == "appliance_device_temperature_celsius"
    }
    assert len(devices) == MOST_DEVICES
    assert f"{odd}3" in devices
