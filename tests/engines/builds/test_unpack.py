"""A wheel is a stranger's archive."""

from __future__ import annotations

import stat
import struct
import zipfile
from pathlib import Path

import pytest

from appliance.engines.builds import unpack as room
from appliance.engines.builds.contents import look
from appliance.engines.builds.unpack import unpack
from appliance.errors import EngineError
from appliance.store.threads import StopFlag, Stopped
from tests.engines.builds.wheel_files import small_wheel

ELF = b"\x7fELF rest"


def unpacked(wheel: Path, stop: StopFlag | None = None) -> Path:
    target = wheel.parent / "out"
    unpack(wheel, target, tell=lambda _: None, stop=stop or StopFlag())
    return target


def tree(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


LONG, DEEP = "x" * 500, "/".join("abcdefghijklmnopqrstuvwxyz")


@pytest.mark.parametrize(
    "name",
    ["../evil", "a/../../evil", "/etc/evil", "a\\..\\evil", "C:/evil", "a//b", "./a", "a/.", "con",
     "a/nul.txt", "a\nb", "a\x1bb", LONG, DEEP, "a. ", "b."],
)  # fmt: skip
def test_no_file_gets_out(tmp_path: Path, name: str) -> None:
    box = tmp_path / "in" / "box"
    wheel = small_wheel(box, {"good": b"1", name: b"2"})
    with pytest.raises(EngineError, match="not unpacked"):
        unpacked(wheel)
    assert tree(tmp_path) <= {str(wheel.relative_to(tmp_path))}, "not even the good one was written"


def with_info(folder: Path, name: str, mode: int, data: bytes = b"/etc/passwd") -> Path:
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    with zipfile.ZipFile(folder / "w.whl", "w") as archive:
        archive.writestr(info, data)
    return folder / "w.whl"


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFIFO])
def test_links_and_devices_are_refused(tmp_path: Path, kind: int) -> None:
    with pytest.raises(EngineError) as caught:
        unpacked(with_info(tmp_path, "a", kind | 0o777))
    assert caught.value.cause == "A is a link or a device."


def test_one_name_twice_also_in_another_case(tmp_path: Path) -> None:
    with pytest.raises(EngineError) as caught:
        unpacked(small_wheel(tmp_path, {"pkg/A": b"1", "pkg/a": b"2"}))
    assert "twice" in str(caught.value.cause)
    with pytest.raises(EngineError) as caught:
        unpacked(small_wheel(tmp_path, {"x.data/platlib/a": b"1", "a": b"2"}))
    assert "twice" in str(caught.value.cause)


def test_bounds_of_count_and_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = small_wheel(tmp_path, {f"{number}": bytes(100) for number in range(10)})
    monkeypatch.setattr(room, "MOST_FILES", 9)
    with pytest.raises(EngineError) as caught:
        unpacked(wheel)
    assert "10 files" in str(caught.value.cause)
    monkeypatch.setattr(room, "MOST_FILES", 10)
    monkeypatch.setattr(room, "MOST_BYTES", 999)
    with pytest.raises(EngineError) as caught:
        unpacked(wheel)
    assert "more than 999 B" in str(caught.value.cause)
    monkeypatch.setattr(room, "MOST_BYTES", 1_000)
    assert len(tree(unpacked(wheel))) == 10


def test_a_file_that_is_larger_than_its_table_says(tmp_path: Path) -> None:
    """A bomb: the table of contents says 10 bytes, the packed data holds a million."""
    wheel = small_wheel(tmp_path, {"bomb": bytes(1_000_000)})
    raw = bytearray(wheel.read_bytes())
    at = raw.rindex(b"PK\x01\x02")
    raw[at + 24 : at + 28] = struct.pack("<I", 10)
    wheel.write_bytes(raw)
    with pytest.raises(EngineError, match="not unpacked"):
        unpacked(wheel)
    written = sum(path.stat().st_size for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert written <= 10


@pytest.mark.parametrize("damage", [b"", b"not a zip", None])
def test_what_is_no_archive_is_said(tmp_path: Path, damage: bytes | None) -> None:
    wheel = small_wheel(tmp_path, {"a": bytes(range(256)) * 99})
    raw = bytearray(wheel.read_bytes())
    raw[60:90] = bytes(30)
    wheel.write_bytes(raw if damage is None else damage)
    with pytest.raises(EngineError) as caught:
        unpacked(wheel)
    assert "can't be read" in str(caught.value.cause)


def test_a_stop_ends_it(tmp_path: Path) -> None:
    stop = StopFlag()
    stop.set()
    with pytest.raises(Stopped):
        unpacked(small_wheel(tmp_path, {"a": b"1"}), stop)


def test_files_keep_what_can_be_run_and_data_folders_are_spread(tmp_path: Path) -> None:
    info = zipfile.ZipInfo("pkg/tool")
    info.external_attr = (stat.S_IFREG | 0o6777) << 16
    wheel = small_wheel(
        tmp_path, {"pkg/plain": b"1", "x-1.data/scripts/run": b"2", "x-1.data/purelib/p/a": b"3"}
    )
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr(info, b"4")
    out = unpacked(wheel)
    assert tree(out) == {"pkg/plain", "pkg/tool", "bin/run", "p/a"}
    assert stat.S_IMODE((out / "pkg/tool").stat().st_mode) == 0o755  # never setuid
    assert stat.S_IMODE((out / "pkg/plain").stat().st_mode) == 0o644


def test_what_a_wheel_is(tmp_path: Path) -> None:
    def contents(*members: tuple[str, bytes]) -> tuple[str, str | None]:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        found = look(unpacked(small_wheel(folder, dict(members))))
        return found.kind, found.program

    script = ("x.data/scripts/llama-server", b"#!python\n")
    assert contents(("xllamacpp/__init__.py", b"")) == ("xllamacpp", None)
    assert contents(script, ("pkg/bin/llama-server", ELF)) == ("llama-server", "pkg/bin/llama-server")
    assert contents(("p/a/llama-server", ELF), ("q/llama-server", ELF)) == ("llama-server", "q/llama-server")
    assert contents(("p/llama-server.exe", b"MZ..")) == ("llama-server", "p/llama-server.exe")
    with pytest.raises(EngineError, match="holds no engine"):
        contents(script)
