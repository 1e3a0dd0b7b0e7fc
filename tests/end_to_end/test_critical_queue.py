"""A running appliance whose GPU turns critical while requests wait for a slot."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.appliance import Home
from tests.end_to_end.second_leg import ask, wait
from tests.end_to_end.test_heat import LOADED, WORDS, laptop
from tests.engines.fake_engine import Script

LONG = Script(tokens=WORDS * 4, token_s=0.25, load_lines=LOADED)


@pytest.mark.slow
async def test_what_runs_goes_on_and_what_waits_leaves_or_is_told_at_once(home: Home, tmp_path: Path) -> None:
    async with laptop(home, tmp_path, LONG) as one:
        running = one.running
        await wait(running, lambda s: s["gpus"] and s["gpus"][0]["temperature"] == 60)

        async def asks(route: str | None, queue: dict[str, int]) -> asyncio.Task[Any]:
            task = asyncio.create_task(ask(running, route, max_tokens=40))
            await wait(running, lambda s: {key: s["queue"][key] for key in queue} == queue)
            return task

        first = await asks("local", {"running": 1, "waiting": 0})
        pinned = await asks("local", {"running": 1, "waiting": 1})
        free = await asks(None, {"running": 1, "waiting": 2})
        one.set(temp=95, reasons=0x40)
        status, headers, _ = await pinned
        assert (status, headers["X-Appliance-Reason"]) == (503, "reject.thermal")
        status, headers, _ = await free
        assert (status, headers["X-Appliance-Reason"]) == (200, "remote.thermal")
        assert one.left == 1
        assert not first.done(), "they did not wait for the slot"
        found = await asyncio.to_thread(running.status)
        assert (found["thermal"], found["queue"]["waiting"]) == ("critical", 0)
        assert found["queue"]["eases"] == found["eases"] == "the machine is critically hot"
        status, headers, _ = await first
        assert (status, headers["X-Appliance-Route"]) == (200, "local")
        one.set(temp=60)
        await wait(running, lambda s: s["queue"]["eases"] is None)
        status, headers, _ = await ask(running, max_tokens=1)
        assert (status, headers["X-Appliance-Reason"]) == (200, "local.ok")
