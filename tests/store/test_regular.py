"""Only regular files are opened: what else has a file's name is named, and nothing waits for it."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance.store import regular
from appliance.store.regular import NotRegular


def _socket(path: Path) -> None:
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(path))
    made.close()


def _link(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


KINDS: list[tuple[str, bool, Callable[[Path], None]]] = [
    ("a folder", False, Path.mkdir),
    ("a pipe", False, os.mkfifo),
    ("a socket", False, _socket),
    ("a symbolic link", False, _link("/dev/zero")),
    ("a symbolic link", False, _link("nowhere")),
    ("a device", True, _link("/dev/zero")),
]


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_RDWR | os.O_CREAT, os.O_WRONLY | os.O_APPEND])
@pytest.mark.parametrize(("kind", "follow", "make"), KINDS)
def test_what_is_no_regular_file_is_named(
    tmp_path: Path, kind: str, follow: bool, make: Callable[[Path], None], flags: int
) -> None:
    path = tmp_path / "x"
    make(path)
    with pytest.raises(NotRegular, match=f"it is {kind}, not a regular file") as caught:
        regular.open_file(path, flags, follow=follow)
    assert str(path) in caught.value.hint
    assert not (tmp_path / "nowhere").exists(), "nothing is made at the end of a link"


def test_a_regular_file_is_read_also_at_the_end_of_a_link_that_may_be_followed(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"bytes")
    (tmp_path / "link").symlink_to("real")
    with regular.reader(tmp_path / "real") as one, regular.reader(tmp_path / "link", follow=True) as two:
        assert one.read() == two.read() == b"bytes"


def test_what_comes_between_the_look_and_the_opening_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x"
    os.mkfifo(path)
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").is_dir() else 0
    with monkeypatch.context() as patch:
        patch.setattr(regular, "kind_of", lambda *_, **__: None)
        with pytest.raises(NotRegular, match="a pipe"):
            regular.open_file(path)
    assert not before or len(os.listdir("/proc/self/fd")) == before, "no handle is left"


def test_nothing_is_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        regular.open_file(tmp_path / "x")
    os.close(regular.open_file(tmp_path / "x", os.O_RDWR | os.O_CREAT))
    assert (tmp_path / "x").read_bytes() == b""
