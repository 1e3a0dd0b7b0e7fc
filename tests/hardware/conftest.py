"""The fake NVML and folder fixtures of /sys and /proc."""

from __future__ import annotations

from pathlib import Path

import pynvml
import pytest

from appliance.hardware.sysfs import Roots
from tests import nvml_stub
from tests.nvml_stub.machine import FakeMachine, fake_machine


@pytest.fixture(autouse=True)
def no_real_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process there is no NVIDIA library, whatever the machine has; children see the stub's."""

    def missing() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "_LoadNvmlLibrary", missing)


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nvml_stub.build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def laptop(nvml_library: Path, tmp_path: Path) -> FakeMachine:
    """A laptop whose only GPU is the stub's: no fan, no memory temperature."""
    return fake_machine(nvml_library, tmp_path)


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    """Empty /sys, /proc and /usr/share."""
    made = Roots(tmp_path / "sys", tmp_path / "proc", tmp_path / "share")
    for folder in (made.sys, made.proc, made.share):
        folder.mkdir()
    return made
