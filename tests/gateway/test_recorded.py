"""Each decision that moves a request is told, with what it was made from, and nothing of its text."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict, dataclass, field
from typing import Any

import pytest

from appliance.gateway.data import GATE
from appliance.routing import Decision, Features, View
from tests.gateway.house import House, until


@dataclass
class Told:
    """A recorder that remembers."""

    all: list[tuple[str, Features, View, Decision, dict[str, Any]]] = field(default_factory=list)

    def decided(
        self, request_id: str, features: Features, view: View, decision: Decision, **more: Any
    ) -> None:
        self.all.append((request_id, features, view, decision, more))

    @property
    def short(self) -> list[tuple[str, str]]:
        return [(more["moment"], decision.reason) for *_, decision, more in self.all]


@pytest.fixture
def told(house: House) -> Told:
    made = Told()
    house.runner.app[GATE].recorder = made
    return made


async def test_a_plain_request_is_one_decision(house: House, told: Told) -> None:
    async with house.post(messages=[{"role": "user", "content": "my secret"}], max_tokens=5) as got:
        document = await got.json()
    ((request_id, features, view, decision, more),) = told.all
    assert request_id == document["appliance"]["request_id"]
    assert (features.model, features.max_tokens, decision.reason) == ("tiny", 5, "local.ok")
    assert view.local is not None
    assert more["moment"] == "first"
    assert "secret" not in json.dumps([asdict(features), asdict(view), asdict(decision), more])


async def test_a_side_that_fails_is_told_with_its_words_apart(house: House, told: Told) -> None:
    house.remote.up = True
    house.local.url = "http://127.0.0.1:9"
    async with house.post() as got:
        assert got.status == 200
    assert told.short == [("first", "local.ok"), ("failed", "remote.engine_down")]
    more = told.all[1][4]
    assert more["given"] == {"failed": "local", "remote": None}
    assert more["cause"]
    assert more["cause"] in told.all[1][3].detail


async def test_waiting_too_long_is_told_once_and_waiting_on_is_not(house: House, told: Told) -> None:
    house.configure(max_wait=0.01)
    queue = house.local.queue
    with queue.enter("interactive") as place:
        assert await place.wait(1.0)
        asked = asyncio.create_task(_status(house))
        await until(lambda: queue.snapshot.waiting == 1)
        assert told.short == [("first", "local.queued")]
        house.remote.up = True
        assert await asked == 200
    assert told.short == [("first", "local.queued"), ("waited", "remote.queue")]
    assert told.all[1][4]["given"]["waited_s"] > 0


async def _status(house: House) -> int:
    async with house.post() as got:
        return int(got.status)
