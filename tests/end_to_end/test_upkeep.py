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
from typing import Any

import pytest

from appliance.units import MIB
from tests.daemon.shelf import catalog
from tests.end_to_end.appliance import MODEL, Home, until
from tests.end_to_end.local_host import always, serving
from tests.store.helpers import gguf
from tests.store.server import Host, status

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


def pulled(home: Home, *names: str) -> list[Path]:
    for name in names:
        assert home.run("models", "pull", name).code == 0
    return [next((home.root / "data" / "models" / name).rglob("*.gguf")) for name in names]


def flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 1]))


def row(home: Home, name: str) -> dict[str, Any]:
    rows = home.run("models", "list", "--json").document["models"]
    return next(dict(found) for found in rows if found["id"] == name)


def test_verify_all_goes_on_says_what_is_damaged_and_repair_fetches_only_that(
    fresh: Home, host: Host
) -> None:
    _, two, three = pulled(fresh, "one", "two", "three")
    flip(two, CHUNK + 5)
    three.unlink()
    done = fresh.run("models", "verify", "--all", "--json")
    assert done.code == 4
    found = {item["model"].partition(":")[0]: item for item in done.document["models"]}
    assert (done.document["verified"], done.document["damaged"]) == (1, 2)
    assert found["one"]["verified"] is True
    assert found["two"]["damage"][0]["ranges"] == [[CHUNK, 2 * CHUNK]]
    assert found["three"]["error"]["code"] == "model_missing"
    assert (row(fresh, "two")["state"], row(fresh, "two")["arrived"]) == ("partial", 2 * CHUNK)

    sent = host.sent
    mended = fresh.run("models", "repair", "two", "--json")
    assert (mended.code, mended.document["fetched"]) == (0, CHUNK)
    assert host.sent - sent == CHUNK
    assert "is whole again: 24.0 MiB fetched, 24.0 MiB in all" in fresh.run("models", "repair", "three").out
    assert fresh.run("models", "verify", "--all").code == 0
    assert "nothing was damaged" in fresh.run("models", "repair", "two").out


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


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("verify",), 2),
        (("verify", "one", "--all"), 2),
        (("verify", "nothing-like-it"), 4),
        (("verify", "one"), 4),
        (("verify", "--all"), 0),
        (("repair", "one"), 4),
        (("prune", "--unused", "soon"), 2),
        (("prune", "--partials"), 0),
        (("rm", "one"), 4),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value),
)
def test_exit_codes_with_nothing_here(fresh: Home, arguments: tuple[str, ...], code: int) -> None:
    done = fresh.run("models", *arguments)
    assert done.code == code, done.err
    assert "Traceback" not in done.err


def test_prune_lists_first_and_frees_what_it_said(fresh: Home, host: Host) -> None:
    one, two = pulled(fresh, "one", "two")
    two.write_bytes(bytes(SIZE))
    assert fresh.run("models", "verify", "two").code == 4
    always(host, status(404))
    flip(one, 3)
    assert fresh.run("models", "verify", "one").code == 4

    listed = fresh.run("models", "prune")
    assert listed.code == 0
    assert "--partials" in listed.out
    assert "24.0 MiB" in listed.out
    refused = fresh.run("models", "prune", "--partials", "--quarantine")
    assert refused.code == 2
    assert "--yes" in refused.err
    dry = fresh.run("models", "prune", "--partials", "--quarantine", "--dry-run", "--json").document
    real = fresh.run("models", "prune", "--partials", "--quarantine", "--yes", "--json").document
    assert (dry["dry_run"], real["dry_run"]) == (True, False)
    assert real["items"] == dry["items"]
    assert real["freed"] == dry["freed"] >= 2 * SIZE
    assert fresh.run("models", "prune").out.strip() == "Nothing to remove."


def test_a_model_that_the_settings_name_is_never_unused(fresh: Home) -> None:
    pulled(fresh, "one", "two")
    assert fresh.run("config", "set", "models.default", "one").code == 0
    items = fresh.run("models", "prune", "--unused", "0s", "--dry-run", "--json").document["items"]
    assert [item["about"].split(",")[0] for item in items] == ["two:F32"]


def test_rm_also_takes_what_is_unfinished(fresh: Home) -> None:
    (one,) = pulled(fresh, "one")
    flip(one, 3)
    fresh.run("models", "verify", "one")
    done = fresh.run("models", "rm", "one", "--json")
    assert done.code == 0
    assert done.document["freed"] >= SIZE
    assert row(fresh, "one")["state"] == "absent"


def test_the_list_says_what_fits_and_what_is_here(fresh: Home) -> None:
    pulled(fresh, "one")
    here = row(fresh, "one")
    assert (here["state"], here["pin"], here["referenced"], here["used_at"]) == ("here", "user", False, None)
    assert here["disk"] >= SIZE
    absent = row(fresh, "two")
    assert absent["fits"]["estimated"] is True
    assert absent["fits"]["where"] in ("cpu", "gpu")
    family = fresh.run("models", "list", "--family", "qwen3", "--fits", "--json").document["models"]
    assert {found["family"] for found in family} == {"qwen3"}
    uses = fresh.run("models", "list", "--use", "embedding", "--json").document["models"]
    assert all("embedding" in found["use"] for found in uses)
    assert len(uses) > 3
    assert [f["id"] for f in fresh.run("models", "list", "--here", "--json").document["models"]] == ["one"]


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
