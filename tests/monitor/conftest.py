"""A monitor on a machine with the fake NVML."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psutil
import pytest

from appliance.monitor import Monitor, MonitorSnapshot, Timing
from appliance.settings import Governor
from tests import nvml_stub
from tests.nvml_stub.machine import FakeMachine, fake_machine

PATIENCE_S = 30.0
FAST = Timing(first=10.0, stale=0.4, deadline=0.8, backoff=0.05, longest_backoff=0.2)


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nvml_stub.build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def laptop(nvml_library: Path, tmp_path: Path) -> FakeMachine:
    """A laptop whose only GPU is the stub's."""
    return fake_machine(nvml_library, tmp_path)


@pytest.fixture
async def monitor(laptop: FakeMachine) -> AsyncIterator[Monitor]:
    """Running, with short times; over the threshold counts after 0.3 s and ends after 0.6 s."""
    monitor = Monitor(Governor(hold=0.3, dwell=0.6), interval_s=0.05, timing=FAST, env=laptop.env)
    monitor.set_active(True)
    await monitor.start()
    yield monitor
    await monitor.stop()


async def until(
    monitor: Monitor, condition: Callable[[MonitorSnapshot], bool], patience_s: float = PATIENCE_S
) -> MonitorSnapshot:
    """The first snapshot that meets the condition."""
    end = time.monotonic() + patience_s
    while not condition(snapshot := monitor.snapshot):
        assert time.monotonic() < end, f"not within {patience_s} s: {snapshot}"
        await asyncio.sleep(0.01)
    return snapshot


def gone(pid: int) -> bool:
    """No process, or one that only waits to be asked how it ended."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
