"""The terminal UI on a real pseudo-terminal: opened by `appliance` alone, left by `q`, the daemon goes on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.end_to_end.appliance import MODEL, Home, alive, until


@dataclass
class Terminal:
    """A tmux server of its own, with one window of 100x30."""

    socket: Path

    def tmux(self, *arguments: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", str(self.socket), *arguments], capture_output=True, text=True, check=True
        )
        return done.stdout

    def screen(self) -> str:
        return self.tmux("capture-pane", "-p", "-t", "main")

    def keys(self, *keys: str) -> None:
        self.tmux("send-keys", "-t", "main", *keys)

    def shows(self, text: str, limit_s: float = 60) -> str:
        def look() -> str | None:
            shown = self.screen()
            return shown if text in shown else None

        try:
            return until(look, limit_s, f"the screen shows {text!r}")
        except AssertionError:
            raise AssertionError(f"{text!r} is not on the screen:\n{self.screen()}") from None

    def hides(self, text: str) -> None:
        until(lambda: text not in self.screen(), 10, f"{text!r} leaves the screen")


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    made = Terminal(tmp_path / "t")
    made.tmux("-f", "/dev/null", "new-session", "-d", "-s", "main", "-x", "100", "-y", "30", "sh")
    yield made
    made.tmux("kill-server")


def test_the_dashboard_opens_starts_the_daemon_and_leaves_it_serving(home: Home, terminal: Terminal) -> None:
    small = {
        "APPLIANCE_ENGINE__CTX": "1024",
        "APPLIANCE_ENGINE__PARALLEL": "1",
        "APPLIANCE_SERVER__PORT": "0",
    }
    given = " ".join(f"{key}={value}" for key, value in small.items())
    terminal.keys(
        f"APPLIANCE_HOME={home.root} {given} {sys.executable} -m appliance.cli.main; echo LEFT=$?", "Enter"
    )
    shown = terminal.shows("ready")
    assert "SmolLM2" in terminal.shows("SmolLM2")
    assert "CPU" in shown
    daemon = home.run("status", "--json").document["daemon"]
    try:
        terminal.keys("?")
        terminal.shows("Search all commands")
        terminal.keys("Escape")
        terminal.hides("Search all commands")  # a key right after escape would count as alt+key
        terminal.keys("q")
        terminal.shows("LEFT=0")
        assert alive(daemon["pid"])
        status = home.run("status", "--json").document
        assert status["engines"][0]["state"] == "ready"
        assert status["model"]["ref"].startswith(MODEL)
    finally:
        assert home.run("down").code == 0
    assert not alive(daemon["pid"])
