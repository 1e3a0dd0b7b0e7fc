"""The kernel's files: whole, and None for whatever can't be read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from appliance.hardware import sysfs
from tests.hardware.folders import files


def test_a_file_longer_than_one_read_comes_whole(tmp_path: Path) -> None:
    text = "\n".join(f"processor : {number}" for number in range(20_000))
    assert len(text) > 65_536
    assert sysfs.read_text(files(tmp_path, cpuinfo=text) / "cpuinfo") == text


def test_a_missing_file_a_folder_and_broken_text_are_no_error(tmp_path: Path) -> None:
    (tmp_path / "raw").write_bytes(b" \xff12 \n")
    assert sysfs.read_text(tmp_path / "nothing") is None
    assert sysfs.read_text(tmp_path) is None
    assert sysfs.read_text(tmp_path / "raw") == "\ufffd12"
    assert sysfs.read_int(tmp_path / "raw") is None


def test_an_error_in_the_middle_of_a_read_is_none_and_leaves_no_file_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that is busy, or a device that is gone, fails the read and not the open."""
    closed: list[int] = []
    real = os.close

    def busy(file: int, size: int) -> bytes:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    def close(file: int) -> None:
        closed.append(file)
        real(file)

    with monkeypatch.context() as patch:
        patch.setattr(os, "read", busy)
        patch.setattr(os, "close", close)
        assert sysfs.read_text(files(tmp_path, temp1_input=5) / "temp1_input") is None
    assert len(closed) == 1


@pytest.mark.parametrize(
    ("text", "value"), [("0x1002", 4098), ("-5000", -5000), ("007", 7), ("", None), ("1.5", None)]
)
def test_whole_numbers(tmp_path: Path, text: str, value: int | None) -> None:
    assert sysfs.read_int(files(tmp_path, number=text) / "number") == value


@pytest.mark.parametrize(
    ("state", "asleep"), [("suspended", True), ("suspending", True), ("active", False), ("resuming", False)]
)
def test_a_device_that_falls_asleep_is_left_alone(tmp_path: Path, state: str, asleep: bool) -> None:
    assert sysfs.is_suspended(files(tmp_path, power__runtime_status=state)) is asleep


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12), ("-5", -5), ("0x10de", 0x10DE), ("007", 7), ("1_0", None), ("٣", None), ("", None),
        ("9" * 5000, None), (str(1 << 63), None), (str((1 << 63) - 1), (1 << 63) - 1), ("1e3", None),
    ],
)  # fmt: skip
def test_only_what_the_kernel_writes_is_a_number(tmp_path: Path, text: str, value: int | None) -> None:
    (tmp_path / "file").write_text(text)
    assert sysfs.read_int(tmp_path / "file") == value
