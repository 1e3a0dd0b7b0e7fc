"""Events of the sensors themselves, from one snapshot to the next."""

from __future__ import annotations

from dataclasses import replace

from appliance.daemon.sensor_events import SensorEvents
from appliance.hardware.sensors import GpuSample
from appliance.monitor import DeviceHeat, MonitorSnapshot
from appliance.monitor.snapshot import gpu_view

WELL = GpuSample("GPU-1", 0, "RTX", "cuda", temperature=60.0)
Event = tuple[str, str | None, str, str | None]


def seen(gpu: GpuSample = WELL, **changes: object) -> MonitorSnapshot:
    found = MonitorSnapshot(gpus=(gpu_view(gpu, DeviceHeat("cool"), 0.0, set()),), active=True, age_s=0.0)
    return replace(found, **changes)  # type: ignore[arg-type]


def events(*snapshots: MonitorSnapshot, every_s: float = 1.0) -> list[Event]:
    found: list[Event] = []
    now = 0.0
    watching = SensorEvents(lambda *event: found.append(event), lambda: now)
    for one in snapshots:
        watching.sampled(one)
        now += every_s
    return found


def test_a_gpu_that_is_lost_is_told_with_its_fix_and_so_is_its_return() -> None:
    lost = GpuSample("GPU-1", 0, "RTX", "cuda", trouble="gpu_lost")
    found = events(seen(), seen(lost), seen(lost), seen())
    assert [event[:3] for event in found] == [
        ("sensors", "gpu:GPU-1", "RTX can't be read: The NVIDIA GPU fell off the bus."),
        ("sensors", "gpu:GPU-1", "RTX can be read again."),
    ]
    assert found[0][3] is not None
    assert "Restart the machine" in found[0][3]


def test_silence_has_a_beginning_and_an_end() -> None:
    silent = seen(stale=True, message="The sensors have been silent for 9 s.")
    assert [event[2] for event in events(seen(), silent, silent, seen())] == [
        "The sensors are silent; the last values are shown with their age.",
        "The sensors answer again.",
    ]
    assert len(events(seen(), silent, MonitorSnapshot())) == 1  # nobody asks them any more


def test_many_restarts_are_few_events() -> None:
    ends = [seen(restarts=number) for number in (0, 1, 2, 3, 4, 5)]
    told = "The sensor process ended or hung and was started again"
    assert [event[2] for event in events(*ends)] == [f"{told}."]
    slowly = [event[2] for event in events(*ends, every_s=30.0)]
    assert slowly == [f"{told}.", f"{told} 2 times.", f"{told} 2 times."]


def test_a_call_that_is_left_out_is_named_and_tried_again() -> None:
    left_out = seen(skipped=("nvmlX 0",))
    assert [event[2:] for event in events(seen(), left_out, left_out, seen())] == [
        ("nvmlX 0 hung or crashed twice and is left out for now.", "Update the GPU's driver."),
        ("nvmlX 0 is tried again.", None),
    ]
