"""Followers are woken by a change, look again after their limit, and are let go at the end."""

from __future__ import annotations

import asyncio
import time

from appliance.daemon.changes import Changes


async def test_a_change_wakes_every_follower_at_once() -> None:
    changes = Changes()
    waiting = [asyncio.ensure_future(changes.next(60)) for _ in range(3)]
    await asyncio.sleep(0)
    changes.notify()
    assert await asyncio.wait_for(asyncio.gather(*waiting), 1) == [True, True, True]


async def test_without_a_change_a_follower_looks_again_after_its_limit() -> None:
    changes = Changes()
    began = time.monotonic()
    assert await changes.next(0.05) is True
    assert time.monotonic() - began >= 0.04


async def test_closing_lets_go_who_waits_and_who_comes_later() -> None:
    changes = Changes()
    waiting = asyncio.ensure_future(changes.next(60))
    await asyncio.sleep(0)
    changes.close()
    assert await asyncio.wait_for(waiting, 1) is False
    assert await changes.next(60) is False
