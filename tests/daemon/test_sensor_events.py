"""Events of the sensors themselves, from one snapshot to the next."""

from __future__ import annotations

from dataclasses import replace

from appliance.daemon.sensor_events import SensorEvents
from appliance.daemon.served import ServingSnapshot
from appliance.daemon.status import notes
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
    silent = seen(stale=True, age_s=9.0, message="The sensors have been silent for 9 s.")
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


LOST = GpuSample("GPU-1", 0, "RTX", "cuda", trouble="gpu_lost")
IDLE = MonitorSnapshot(gpus=(gpu_view(replace(WELL, temperature=None), DeviceHeat(), None, set()),))


def test_a_gpu_that_is_lost_from_the_start_is_told() -> None:
    assert [event[2] for event in events(seen(LOST), seen(LOST))] == [
        "RTX can't be read: The NVIDIA GPU fell off the bus."
    ]


def test_while_nobody_looks_nothing_is_told_of_it() -> None:
    """An engine that ends takes the readings along, and the next one finds the GPU as it was, or back."""
    starts = replace(IDLE, active=True)
    asleep = seen(replace(WELL, asleep=True))
    assert len(events(seen(LOST), IDLE, starts, seen(LOST))) == 1
    told = [event[2] for event in events(seen(LOST), IDLE, starts, asleep, seen())]
    assert told[1:] == ["RTX can be read again."]


def test_a_trouble_that_becomes_another_one_is_told_once_more() -> None:
    reset = replace(LOST, trouble="reset_required")
    assert [event[3] for event in events(seen(LOST), seen(reset), seen(reset))][1:] == [
        "End the programs that use it and run `nvidia-smi --gpu-reset` as root, or restart the machine."
    ]


def test_a_gpu_that_comes_and_goes_is_told_a_few_times_a_minute_and_then_as_it_is() -> None:
    flaps = [seen(LOST if number % 2 == 0 else WELL) for number in range(301)]
    told = events(*flaps)
    assert 16 <= len(told) <= 4 * 6
    settled = events(*flaps[:9], *[seen(LOST)] * 60)
    assert len(settled) == 5
    assert "can't be read" in settled[-1][2]


def test_a_driver_that_fails_before_any_gpu_is_known_is_told() -> None:
    message = "The NVIDIA driver is not loaded. Load it with `modprobe nvidia`."
    down = MonitorSnapshot(active=True, age_s=0.0, message=message)
    assert events(down, down, seen()) == [
        ("sensors", None, "GPUs can't be read.", message),
        ("sensors", None, "GPUs can be read again.", None),
    ]


def test_another_pace_is_no_answer() -> None:
    """It only puts off the moment from which on they count as silent."""
    silent = seen(stale=True, age_s=9.0)
    found = events(seen(), silent, seen(age_s=9.5), seen(stale=True, age_s=12.0), seen(age_s=0.0))
    assert [event[2].partition(";")[0] for event in found] == [
        "The sensors are silent", "The sensors answer again."]  # fmt: skip


def test_sensors_that_never_answered_show_no_values() -> None:
    (event,) = events(MonitorSnapshot(active=True), MonitorSnapshot(active=True, stale=True))
    assert event[2] == "The sensors are silent; no value is known yet."


def test_calls_and_gpus_beyond_all_bounds_cost_no_memory() -> None:
    found = events(*(seen(skipped=tuple(f"call {n} {k}" for k in range(32))) for n in range(200)))
    assert len(found) < 200 * 32
    watching = SensorEvents(lambda *_: None, lambda: 0.0)
    for number in range(1000):
        watching.sampled(seen(skipped=(f"call {number}",)))
    assert max(len(watching._times), len(watching._wrong)) <= 128


def test_the_note_of_silent_sensors_says_what_to_do() -> None:
    (note,) = [one for one in notes(ServingSnapshot(), seen(stale=True)) if one.code == "sensor_stale"]
    assert "update the GPU's driver" in (note.todo or "")
