"""A list never waits for a slow look at the machine, and one look serves many lists."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from appliance.daemon import looks
from appliance.settings import Settings


async def test_one_look_serves_all_who_ask_and_a_slow_one_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[object] = []
    ready = asyncio.Event()

    async def slow(settings: Settings, _: object) -> Any:
        seen.append(settings)
        await ready.wait()
        return "the machine"

    monkeypatch.setattr(looks, "glance", slow)
    monkeypatch.setattr(looks, "WAIT_S", 0.05)
    made = looks.Looks(Settings)

    async def recent() -> Any:
        return await made.recent(None)

    assert (await recent(), await recent()) == (None, None)
    ready.set()
    assert (await recent(), await recent()) == ("the machine", "the machine")
    assert len(seen) == 1
    loaded: Any = "that of the load"
    assert await made.recent(loaded) == loaded
    monkeypatch.setattr(looks, "FRESH_S", -1.0)
    ready.clear()
    assert await recent() == "the machine", "the old one, while a new one takes its time"
    await made.close()
    assert len(seen) == 2
