"""A running appliance keeps the machine awake while a request runs, and no longer."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from tests.daemon.machine.fake_inhibit import install as install_inhibit
from tests.end_to_end.appliance import Home
from tests.end_to_end.second_leg import SMALL, appliance, ask, remote_server, wait
from tests.engines.fake_engine import Script, install

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the inhibitor of Linux")
SLOW = Script(tokens=("a",) * 100, token_s=0.1)
HELD = {"on": True, "held": True, "how": "systemd-inhibit (sleep:idle)", "why_not": None}


@pytest.mark.slow
async def test_held_for_requests_here_and_elsewhere_and_switched_meanwhile(
    home: Home, tmp_path: Path
) -> None:
    inhibit = install_inhibit(tmp_path / "bin", "systemd-inhibit")
    engine = install(tmp_path / "engine", SLOW)
    env = {
        "APPLIANCE_ENGINE__LLAMA_SERVER": str(engine.path),
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
    }
    async with (
        remote_server() as remote,
        appliance(home, remote, "--engine", "llama-server", *SMALL, env=env) as running,
    ):
        status = await asyncio.to_thread(running.status)
        assert status["keep_awake"] == {"on": True, "held": False, "how": None, "why_not": None}
        assert inhibit.starts == [], "a loaded model alone is no reason"
        remote.pace_s = 0.5
        away = asyncio.create_task(ask(running, route="remote"))
        await wait(running, lambda s: s["keep_awake"] == HELD)
        assert len(inhibit.alive) == 1
        code, headers, _ = await away
        assert (code, headers["X-Appliance-Route"]) == (200, "remote")
        asked = asyncio.create_task(ask(running, route="local", max_tokens=100))
        await wait(running, lambda s: s["requests"]["running"])
        await asyncio.to_thread(home.run, "config", "set", "governor.keep_awake", "false")
        off = await wait(running, lambda s: not s["keep_awake"]["on"])
        assert off["requests"]["running"], "the request goes on"
        await wait(running, lambda s: not s["keep_awake"]["held"])
        assert (inhibit.alive, inhibit.ended, asked.done()) == ([], 1, False)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
