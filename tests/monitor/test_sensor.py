"""The sensor child by itself: its lines, its commands, its end."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from appliance.hardware.sensors import GpuSample, Sample
from appliance.monitor.wire import parse
from tests import nvml_stub
from tests.nvml_stub.machine import FakeMachine


@dataclass
class Child:
    process: subprocess.Popen[bytes]

    def sample(self) -> Sample:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = parse(line)
        assert found is not None, line
        return found

    def gpu(self) -> GpuSample:
        return self.sample().gpus[0]

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def gpu_after(self, count: int = 2) -> GpuSample:
        """The first sample that was surely begun after the last change."""
        return [self.gpu() for _ in range(count)][-1]


@contextmanager
def sensor(laptop: FakeMachine, interval: float = 0.05) -> Iterator[Child]:
    process = subprocess.Popen(
        [sys.executable, "-m", "appliance.monitor.child"],
        env=laptop.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    child = Child(process)
    child.say(f"interval {interval}")
    try:
        yield child
    finally:
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(timeout=10) == 0
        assert process.stdout is not None
        process.stdout.close()


def test_a_normal_laptop(laptop: FakeMachine) -> None:
    laptop.set(temp=71, reasons=0x4, util=93)
    with sensor(laptop) as child:
        first = child.sample()
        second = child.sample()
    assert first.gpus == (
        GpuSample(
            id="GPU-00000000-0000-0000-0000-000000000000",
            index=0,
            name="Fake RTX 9000 Laptop GPU",
            backend="cuda",
            total=8192 << 20,
            free=6868 << 20,
            used=1024 << 20,
            reserved=300 << 20,
            memory_source="driver",
            temperature=71.0,
            slowdown_at=94.0,
            shutdown_at=97.0,
            max_at=87.0,
            headroom=23.0,
            margin=16.0,
            reasons=0x4,
            clock=1500.0,
            clock_max=2100.0,
            memory_clock=1500.0,
            memory_clock_max=2100.0,
            power=80.0,
            power_limit=115.0,
            utilisation=93.0,
            memory_utilisation=20.0,
            processes=((4242, 512 << 20),),
        ),
    )
    assert first.trouble is None
    assert first.ram_total is not None
    assert first.cpu_percent is None
    assert second.cpu_percent is not None


def test_changes_show_without_a_new_start(laptop: FakeMachine) -> None:
    with sensor(laptop) as child:
        assert child.gpu().temperature == 60
        laptop.set(temp=90, reasons=0x20)
        gpu = child.gpu_after()
    assert (gpu.temperature, gpu.reasons) == (90, 0x20)


def test_unified_memory_is_the_ram(laptop: FakeMachine) -> None:
    laptop.set(err__nvmlDeviceGetMemoryInfo=3, err__nvmlDeviceGetMemoryInfo_v2=3)
    with sensor(laptop) as child:
        sample = child.sample()
    gpu = sample.gpus[0]
    assert (gpu.total, gpu.used, gpu.memory_source) == (sample.ram_total, None, "ram")
    assert gpu.free is not None
    assert (gpu.temperature, gpu.power) == (60, 80)


def test_an_old_driver_is_read_by_its_old_calls(laptop: FakeMachine) -> None:
    laptop.set(
        temp=77,
        reasons=0x40,
        err__nvmlDeviceGetTemperatureV=13,
        err__nvmlDeviceGetMemoryInfo_v2=13,
        err__nvmlDeviceGetMarginTemperature=13,
        err__nvmlDeviceGetCurrentClocksEventReasons=13,
    )
    with sensor(laptop) as child:
        gpu = child.gpu()
    assert (gpu.temperature, gpu.reasons, gpu.margin, gpu.free) == (77, 0x40, None, 6868 << 20)


def test_margins_stand_in_for_the_threshold(laptop: FakeMachine) -> None:
    laptop.set(err__nvmlDeviceGetTemperatureThreshold=3, field__194=-2 & 0xFFFFFFFF, temp=80, t_gpumax=87)
    with sensor(laptop) as child:
        gpu = child.gpu()
    assert (gpu.margin, gpu.headroom, gpu.slowdown_at) == (7, 9, 89)


@pytest.mark.parametrize("threshold", [0, 255])
def test_an_implausible_threshold_is_unknown(laptop: FakeMachine, threshold: int) -> None:
    laptop.set(t_slowdown=threshold)
    with sensor(laptop) as child:
        gpu = child.gpu()
    assert (gpu.slowdown_at, gpu.headroom, gpu.temperature) == (None, None, 60)


def test_a_temperature_of_zero_is_unknown(laptop: FakeMachine) -> None:
    laptop.set(temp=0)
    with sensor(laptop) as child:
        gpu = child.gpu()
    assert (gpu.temperature, gpu.headroom, gpu.slowdown_at) == (None, None, 94)


def test_processes_without_memory_are_none(laptop: FakeMachine) -> None:
    laptop.set(proc_na=1)
    with sensor(laptop) as child:
        assert child.gpu().processes == ((4242, None),)


def test_processes_are_read_slowly_and_on_demand(laptop: FakeMachine) -> None:
    laptop.set(pid=1)
    with sensor(laptop) as child:
        assert child.gpu().processes == ((1, 512 << 20),)
        laptop.set(pid=2, temp=61)
        assert child.gpu_after(3).processes == ((1, 512 << 20),)
        child.say("processes")
        assert child.gpu_after(3).processes == ((2, 512 << 20),)


@pytest.mark.parametrize("code", [3, 4, 9, 12, 15, 18, 999])
def test_the_sample_flows_whatever_the_driver_says(laptop: FakeMachine, code: int) -> None:
    with sensor(laptop) as child:
        assert child.gpu().temperature == 60
        laptop.set(**nvml_stub.failing(code))
        sample = [child.sample() for _ in range(3)][-1]
    assert [(gpu.id[:4], gpu.temperature, gpu.free) for gpu in sample.gpus] == [("GPU-", None, None)]
    assert sample.ram_available is not None
    assert (sample.trouble is None) == (code in (3, 4))  # absent fields are not trouble


def test_a_lost_gpu_is_named_stays_in_the_list_and_comes_back(laptop: FakeMachine) -> None:
    with sensor(laptop) as child:
        assert child.gpu().temperature == 60
        laptop.lose_gpu()
        lost = [child.sample() for _ in range(2)][-1]
        assert lost.trouble is not None
        assert "fell off the bus" in lost.trouble
        assert lost.gpus[0].temperature is None
        laptop.set(temp=50)
        back = next(sample for sample in iter(child.sample, None) if sample.gpus[0].temperature is not None)
    assert (back.gpus[0].temperature, back.trouble) == (50, None)


def test_one_of_two_gpus_lost_leaves_the_other_readable(laptop: FakeMachine) -> None:
    laptop.set(count=2)
    with sensor(laptop) as child:
        assert len(child.sample().gpus) == 2
        laptop.lose_gpu()
        next(s for s in iter(child.sample, None) if s.trouble is not None)
        laptop.set(count=1, temp=55)
        sample = next(s for s in iter(child.sample, None) if s.gpus[0].temperature is not None)
    assert [gpu.temperature for gpu in sample.gpus] == [55, None]
    assert sample.trouble is not None


def test_a_driver_that_was_never_there_is_no_trouble(laptop: FakeMachine) -> None:
    laptop.set(err__nvmlInitWithFlags=12)
    with sensor(laptop) as child:
        sample = child.sample()
    assert (sample.gpus, sample.trouble) == ((), None)


def test_host_mode_lets_go_of_the_gpu(laptop: FakeMachine) -> None:
    with sensor(laptop) as child:
        assert child.sample().gpus
        child.say("mode host")
        sample = [child.sample() for _ in range(3)][-1]
        assert sample.gpus == ()
        assert sample.ram_available is not None
        laptop.set(hang=1)  # not one NVML call is made
        child.sample()
        child.sample()
        laptop.set(temp=44)
        child.say("mode full")
        assert next(s for s in iter(child.sample, None) if s.gpus).gpus[0].temperature == 44


def test_nonsense_on_stdin_is_passed_over(laptop: FakeMachine) -> None:
    with sensor(laptop) as child:
        for line in ("", "interval", "interval fast", "mode", "dance", "mode full"):
            child.say(line)
        assert child.gpu_after().temperature == 60


def test_it_ends_with_its_stdin_even_while_the_driver_hangs(laptop: FakeMachine) -> None:
    laptop.set(delay_us=60_000_000)
    with sensor(laptop):
        pass  # the context waits for the end, 10 s at most


def test_a_running_child_sees_a_curve(laptop: FakeMachine) -> None:
    seen: list[GpuSample] = []
    laptop.set(counters=1)
    with sensor(laptop, interval=0.02) as child:
        child.gpu()
        laptop.set(
            curve__temp=nvml_stub.curve((0, 60), (0.3, 95), (0.6, 95), (0.9, 50)),
            step__reasons=nvml_stub.curve((0, 0), (0.3, 0x20), (0.6, 0)),
            counters=1,
        )
        while not seen or seen[-1].temperature != 50:
            seen.append(child.gpu())
    degrees = [gpu.temperature or 0 for gpu in seen]
    assert max(degrees) == 95
    assert any(60 < degree < 95 for degree in degrees)
    assert {gpu.reasons for gpu in seen} == {0, 0x20}
    counters = [(gpu.counters or {}).get("sw_thermal", 0) for gpu in seen]
    assert counters == sorted(counters)
    assert 0.2e9 < counters[-1] < 0.5e9
    assert {(gpu.counters or {}).get("power_brake") for gpu in seen} == {0}


def test_it_stays_small(laptop: FakeMachine) -> None:
    heavy = ("pydantic", "asyncio", "aiohttp", "argparse", "appliance.settings")
    code = f"import sys, appliance.monitor.child.sensor\nresult = [m for m in {heavy!r} if m in sys.modules]"
    assert laptop.json(code) == []


def test_a_samples_line_is_json_for_people_too(laptop: FakeMachine, tmp_path: Path) -> None:
    with sensor(laptop) as child:
        assert child.process.stdout is not None
        document = json.loads(child.process.stdout.readline())
    assert document["gpus"][0]["temperature"] == 60
