"""What an engine's supervisor hears of the requests inside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from appliance.engines import Endpoint
from appliance.gateway.ports import Served
from tests.gateway.house import House
from tests.gateway.upstream import Script


class Heard:
    """A lease that writes down what it is told."""

    def __init__(self) -> None:
        self.beats = 0
        self.told: list[str] = []

    def beat(self) -> None:
        self.beats += 1

    def worked(self) -> None:
        self.told.append("worked")

    def suspect(self) -> None:
        self.told.append("suspect")


@pytest.fixture
def heard(house: House, monkeypatch: pytest.MonkeyPatch) -> Heard:
    lease = Heard()

    @contextmanager
    def busy(served: Served) -> Iterator[Heard]:
        yield lease
        lease.told.append("left")

    monkeypatch.setattr(house.local, "busy", busy)
    return lease


@pytest.mark.parametrize("stream", [True, False])
async def test_a_whole_reply_is_told_piece_by_piece(house: House, heard: Heard, stream: bool) -> None:
    house.engine.script = Script(piece=20)
    async with house.post(stream=stream) as got:
        assert got.status == 200
        await got.read()
    await house.row()
    assert heard.beats > 3
    assert heard.told == ["worked", "left"]


async def test_a_vector_is_a_whole_reply(house: House, heard: Heard) -> None:
    async with house.post("/v1/embeddings", model="embedder", input="x") as got:
        assert got.status == 200
        await got.read()
    await house.row()
    assert heard.told == ["worked", "left"]


ENDS: dict[str, tuple[Script, list[str]]] = {
    "500": (Script(status=500), ["suspect"]),
    "error event": (Script(breaks_after=1, breakage="error"), ["suspect"]),
    "garbage": (Script(content_type="text/html"), ["suspect"]),
    "400": (Script(status=400, error={"code": 400, "message": "no", "type": "invalid_request_error"}), []),
    "died": (Script(breaks_after=1, breakage="die"), []),
}


@pytest.mark.parametrize(("script", "told"), ENDS.values(), ids=ENDS)
async def test_only_an_error_of_the_engine_s_own_is_suspicious(
    house: House, heard: Heard, script: Script, told: list[Any]
) -> None:
    house.engine.script = script
    async with house.post() as got:
        await got.read()
    await house.row()
    assert heard.told == told


async def test_an_engine_that_can_not_be_connected_to_is_suspicious(
    house: House, heard: Heard, tmp_path: Path
) -> None:
    house.local.own = Endpoint("http://engine", str(tmp_path / "gone.sock"), "engine-key", 1)
    async with house.post() as got:
        assert got.status == 503
    await house.row()
    assert heard.told == ["suspect"]
