"""Looking after models as a user does: verify, repair, prune, rm and the list."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.units import MIB
from tests.daemon.shelf import catalog
from tests.end_to_end.appliance import MODEL, Home, until
from tests.end_to_end.local_host import pulled, serving
from tests.store.helpers import flip, gguf
from tests.store.server import Host

CHUNK = 8 * MIB
SIZE = 3 * CHUNK


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with serving(gguf(SIZE)) as made:
        yield made


@pytest.fixture
def fresh(tmp_path: Path, host: Host) -> Home:
    """A user whose catalog has three small models at the local server."""
    host.acts = []
    home = Home(tmp_path / "home", {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"})
    home.catalog(catalog(host, "one", "two", "three"))
    return home


def test_verify_in_words(fresh: Home) -> None:
    one, _ = pulled(fresh, "one", "two")
    assert "matches its SHA-256 (24.0 MiB in " in fresh.run("models", "verify", "one").out
    flip(one, 3)
    done = fresh.run("models", "verify", "one", "two")
    assert done.code == 4
    assert f"1 of 3 chunks of 8.0 MiB differ: bytes 0-{CHUNK - 1}" in done.err
    table = [line.split()[:2] for line in done.out.splitlines()]
    assert table[1:] == [["one:F32", "one:F32"], ["two:F32", "verified"]]
    assert fresh.run("models", "verify", "one").code == 4, "a model that is no longer here is not verified"


@pytest.mark.parametrize(("columns", "shown"), [(80, "Model Size Fits State"), (120, "Use License")])
def test_the_table_stays_on_one_line_each(fresh: Home, columns: int, shown: str) -> None:
    text = at_terminal(fresh, columns, "models", "list")
    lines = text.splitlines()
    head = next(line for line in lines if line.startswith("Model"))
    assert shown in " ".join(head.split())
    table = lines[lines.index(head) : lines.index(head) + 70]
    assert max(len(line.rstrip()) for line in table) <= columns
    assert all(":" in line for line in table[1:]), "a row takes one line"
    assert "Not shown at this width" in text


def test_a_loaded_model_is_checked_by_the_daemon_which_stops_it(home: Home) -> None:
    path = Path(home.run("models", "list", "--here", "--json").document["models"][0]["path"])
    good = path.read_bytes()
    path.unlink()  # other homes share these bytes
    path.write_bytes(good)
    with home.up(MODEL, "--ctx", "1024", "--parallel", "1") as up:
        assert home.run("models", "prune", "--unused", "0s", "--dry-run", "--json").document["items"] == []
        rows = home.run("models", "list", "--here", "--json").document["models"]
        assert rows[0]["loaded"] is True
        assert rows[0]["used_at"] is not None
        assert home.run("models", "verify", MODEL, "--json").document["verified"] is True
        flip(path, 50_000_000)
        done = home.run("models", "verify", MODEL, "--json")
        assert done.code == 4
        assert done.document["damage"][0]["kind"] == "changed"
        until(lambda: up.status()["engines"][0]["state"] == "failed", 10, "the engine stopped")


def at_terminal(home: Home, columns: int, *arguments: str) -> str:
    """The output of a command at a terminal of that width, without its escape sequences."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "appliance.cli.main", *arguments],
        env=home.environment({"TERM": "xterm", "NO_COLOR": "1", "COLUMNS": str(columns)}),
        stdin=slave, stdout=slave, stderr=slave,
    )  # fmt: skip
    os.close(slave)
    found = b""
    while True:
        try:
            data = os.read(master, 65_536)
        except OSError:
            break
        if not data:
            break
        found += data
    os.close(master)
    assert process.wait(30) == 0
    return re.sub(r"\x1b\[[0-9;]*m", "", found.decode()).replace("\r\n", "\n")
