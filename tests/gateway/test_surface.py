"""Routes, error shapes, journal and metrics as clients meet them."""

from __future__ import annotations

import logging
import sys
from typing import Any

import pytest

from tests.gateway.house import LOCAL_MODEL, House, short
from tests.gateway.house import house as running


async def test_models_lists_what_is_served(house: House) -> None:
    for path in ("/v1/models", "/batch/v1/models"):
        async with house.http.get(house.url + path) as got:
            listed = await got.json()
        assert listed["object"] == "list"
        assert [model["id"] for model in listed["data"]] == [LOCAL_MODEL, "embedder:F16"]
    async with house.http.get(f"{house.url}/v1/models/tiny") as got:
        assert (await got.json())["id"] == LOCAL_MODEL


async def test_models_lists_only_what_a_request_gets_an_answer_for(house: House) -> None:
    async def listed() -> list[str]:
        async with house.http.get(f"{house.url}/v1/models") as got:
            return [model["id"] for model in (await got.json())["data"]]

    house.local.elsewhere = {"embedder:F16"}
    assert await listed() == [LOCAL_MODEL, "embedder:F16"], "a remote takes it"
    house.configure(policy="local-only")
    assert await listed() == [LOCAL_MODEL]
    house.configure(policy="remote-only")
    del house.remote.mapping["tiny"]
    assert await listed() == ["embedder:F16"]


async def test_the_handlers_read_no_file(house: House) -> None:
    """They run in the event loop. Sockets of `/proc` are the kernel's answer about a caller, no disk."""
    opened: list[str] = []
    watching = [True]

    def watch(event: str, args: tuple[Any, ...]) -> None:
        disk = event in ("open", "os.listdir", "os.scandir") and isinstance(args[0], str)
        if watching and disk and not args[0].startswith("/proc/"):
            opened.append(args[0])

    sys.addaudithook(watch)  # there is no way to take it off
    try:
        for path in ("/v1/models", "/v1/models/tiny", "/metrics", "/health"):
            async with house.http.get(house.url + path) as got:
                assert got.status == 200
        for model in ("tiny", "nope"):
            async with house.post(model=model) as got:
                await got.read()
    finally:
        watching.clear()
    assert opened == []


async def test_an_unknown_model_is_a_404_with_the_nearest_names(house: House) -> None:
    async with house.post(model="tinny") as got:
        assert got.status == 404
        error = (await got.json())["error"]
        assert (error["code"], error["param"], error["type"]) == (
            "model_not_found",
            "model",
            "not_found_error",
        )
        assert "tiny, embedder" in error["message"]
        assert got.headers["X-Appliance-Reason"] == "reject.not_found"
    row = await house.row()
    assert (row.status, row.route, row.model, row.served_model) == (404, "none", "tinny", None)


async def test_health_says_whether_a_request_would_be_served(house: House) -> None:
    async with house.http.get(f"{house.url}/health") as got:
        assert (got.status, await got.json()) == (200, {"status": "ok"})
    house.host.state = {"status": "loading", "model": LOCAL_MODEL}
    async with house.http.get(f"{house.url}/health") as got:
        assert (got.status, (await got.json())["status"]) == (503, "loading")


async def test_embeddings_are_answered_by_models_made_for_them(house: House) -> None:
    async with house.post("/v1/embeddings", model="embedder", input="x") as got:
        assert got.status == 200
        reply = await got.json()
        assert reply["data"][0]["embedding"] == [0.25, -0.5]
        assert reply["appliance"]["route"] == got.headers["X-Appliance-Route"] == "local"
    assert "stream" not in house.engine.seen[0].body
    assert (await house.row()).tokens_in == 4
    async with house.post("/v1/embeddings", model="tiny", input="x") as got:
        assert got.status == 400
        error = (await got.json())["error"]
        assert "embedder:F16" in error["message"]
        assert error["code"] == "reject.unsupported"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/v1/nothing", 404), ("POST", "/v1/images/generations", 404),
     ("GET", "/v1/chat/completions", 405), ("GET", "/v1/receipts/req_unknown", 404),
     ("GET", "/v1/models/nope", 404), ("GET", "/", 404)],
)  # fmt: skip
async def test_unknown_routes_answer_in_openais_shape(
    house: House, method: str, path: str, status: int
) -> None:
    body: dict[str, str] | None = {} if method == "POST" else None
    async with house.http.request(method, house.url + path, json=body) as got:
        assert got.status == status
        assert set((await got.json())["error"]) >= {"message", "type", "param", "code"}
        assert got.headers["X-Request-Id"]


async def test_a_huge_body_is_refused() -> None:
    async with running(short(body_bytes=10_000)) as house:
        async with house.post(padding="x" * 20_000) as got:
            assert got.status == 413
            error = (await got.json())["error"]
            assert error["type"] == "invalid_request_error"
            assert "10 KiB" in error["message"]
        assert house.engine.seen == []


async def test_a_body_in_another_encoding_than_it_says_is_a_400_and_no_noise(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip", "Content-Length": "7"}
    async with house.http.post(f"{house.url}/v1/completions", data=b'{"a":1}', headers=headers) as got:
        assert got.status == 400
        assert "Content-Encoding" in (await got.json())["error"]["message"]
    assert not [record for record in caplog.records if record.exc_info]


async def test_a_model_that_nobody_serves_now_is_a_404_with_the_command_that_serves_it(house: House) -> None:
    house.local.elsewhere = {"embedder:F16"}
    house.remote.mapping = {}
    async with house.post(model="embedder") as got:
        assert got.status == 404
        error = (await got.json())["error"]
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert "`appliance up embedder`" in error["message"]


@pytest.mark.parametrize("name", ["x" * 5000, "\x1b[31m" * 50])
async def test_no_more_of_an_unknown_name_is_repeated_than_a_name_needs(house: House, name: str) -> None:
    async with house.post(model=name) as got:
        assert got.status == 404
        message = (await got.json())["error"]["message"]
    assert len(message) < 200
    assert "\x1b" not in message
    assert "embedder" in message


async def test_the_journal_row_holds_numbers_and_no_words(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    said = [{"role": "user", "content": "the secret of the user"}]
    async with house.post(messages=said, model="tiny", headers={"User-Agent": "script/1"}) as got:
        assert got.status == 200
        request_id = got.headers["X-Request-Id"]
    row = await house.row()
    assert row.request_id == request_id
    assert (row.model, row.served_model, row.route, row.reason) == ("tiny", LOCAL_MODEL, "local", "local.ok")
    assert (row.lane, row.path, row.status) == ("interactive", "/v1/chat/completions", 200)
    assert (row.tokens_in, row.tokens_out, row.tokens_per_second) == (7, 3, 42.5)
    assert row.queue_ms is not None
    assert row.ttft_ms is not None
    assert row.total_ms is not None
    assert 0 <= row.queue_ms <= row.ttft_ms <= row.total_ms < 5_000
    assert row.client == "script/1"
    assert "secret" not in repr(row) + caplog.text
    [outcome] = house.local.outcomes
    assert (outcome.tokens_out, outcome.tokens_per_second, outcome.running, outcome.ok) == (3, 42.5, 1, True)


async def test_metrics_count_requests_with_bounded_labels(house: House) -> None:
    for body in ({}, {"stream": True}, {"model": "a-name-that-nobody-knows"}):
        async with house.post(**body) as got:
            await got.read()
    async with house.http.get(f"{house.url}/metrics") as got:
        text = await got.text()
    line = ('appliance_requests_total{lane="interactive",path="/v1/chat/completions",reason="local.ok",'
            'route="local",status="200"} 2.0')  # fmt: skip
    assert line in text
    assert 'appliance_tokens_total{direction="out",route="local"} 6.0' in text
    assert 'appliance_queue_waiting{lane="batch",model="tiny:Q4_1"} 0.0' in text
    assert "appliance_requests_in_flight 0.0" in text
    assert "a-name-that-nobody-knows" not in text


@pytest.mark.parametrize("headers", [{"X-Appliance-Route": "cloud"}, {"X-Appliance-Priority": "urgent"}])
async def test_a_header_that_is_misspelt_is_a_400(house: House, headers: dict[str, str]) -> None:
    async with house.post(headers=headers) as got:
        assert got.status == 400
    assert house.engine.seen == []


async def test_a_fault_of_our_own_shows_no_traceback(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("inner detail")

    monkeypatch.setattr(house.local, "view", broken)
    async with house.post() as got:
        assert got.status == 500
        text = await got.text()
    assert "inner detail" not in text
    assert "Traceback" not in text
    assert (await house.row()).status == 500
