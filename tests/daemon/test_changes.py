"""Followers hear of every change at least once, and of nothing that did not happen."""

from __future__ import annotations

import asyncio

from appliance.daemon.changes import Changes


async def test_each_follower_is_woken_and_a_burst_is_one_change() -> None:
    changes = Changes()
    first, second = changes.follow(), changes.follow()
    waiting = [asyncio.ensure_future(anext(first)), asyncio.ensure_future(anext(second))]
    await asyncio.sleep(0)
    for _ in range(5):
        changes.notify()
    await asyncio.wait_for(asyncio.gather(*waiting), 1)
    again = asyncio.ensure_future(anext(first))
    done, _ = await asyncio.wait({again}, timeout=0.05)
    assert not done, "five changes at once are one"
    changes.notify()
    await asyncio.wait_for(again, 1)


async def test_a_change_while_a_follower_is_busy_is_not_lost() -> None:
    changes = Changes()
    follower = changes.follow()
    waiting = asyncio.ensure_future(anext(follower))
    await asyncio.sleep(0)
    changes.notify()
    await asyncio.wait_for(waiting, 1)
    changes.notify()
    await asyncio.wait_for(anext(follower), 1)


async def test_closing_ends_every_follower() -> None:
    changes = Changes()

    async def count() -> int:
        return len([change async for change in changes.follow()])

    counting = asyncio.ensure_future(count())
    await asyncio.sleep(0)
    changes.close()
    assert await asyncio.wait_for(counting, 1) == 0
