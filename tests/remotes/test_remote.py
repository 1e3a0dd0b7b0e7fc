"""A Remote and the pool against the fake vLLM."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web

from appliance.errors import RemoteError
from appliance.remotes import Remote, RemotePool, RemoteSnapshot, ServedModel
from appliance.remotes.address import base, is_private, notes, root
from appliance.settings import RemoteSettings
from tests.fake_vllm import DEFAULT_MODEL, FakeVllm

SECRET = "s3cret-value"
Make = Callable[..., Remote]


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    """Remotes that are stopped at the end of the test."""
    made: list[Remote] = []

    def build(url: str, *, env: dict[str, str] | None = None, **fields: Any) -> Remote:
        extra = {name: fields.pop(name) for name in ("interval_s", "on_change") if name in fields}
        chosen = {"name": "vllm", "url": url, "models": {"qwen3-8b": DEFAULT_MODEL}} | fields
        made.append(Remote(RemoteSettings(**chosen), env={} if env is None else env, **extra))
        return made[-1]

    yield build
    for remote in made:
        await remote.stop()


async def test_a_look_shows_models_queue_version_and_latency(make: Make) -> None:
    async with FakeVllm(models=(DEFAULT_MODEL, "lora"), max_model_len=8192, version="0.33.0") as fake:
        fake.running, fake.waiting = 3, 5
        remote = make(fake.url)
        assert remote.snapshot.state == "unknown"
        seen = await remote.probe()
    assert (seen.state, seen.error, seen.breaker, seen.version) == ("up", None, "closed", "0.33.0")
    assert seen.models == (ServedModel(DEFAULT_MODEL, 8192), ServedModel("lora", 8192))
    assert (seen.running, seen.waiting) == (3, 5)
    assert seen.latency_ms is not None
    assert 0 < seen.latency_ms < 5000
    assert seen.checked_at is not None
    assert fake.generations == []


async def test_before_the_first_look_nothing_is_offered(make: Make) -> None:
    offer = make("http://127.0.0.1:9/v1").offer("qwen3-8b")
    assert (offer.up, offer.has_model, offer.max_model_len) == (False, True, None)
    assert offer.detail == "not looked at yet"


async def test_an_offer(make: Make) -> None:
    async with FakeVllm(max_model_len=8192) as fake:
        remote = make(fake.url)
        await remote.probe()
    offer = remote.offer("qwen3-8b")
    assert (offer.name, offer.up, offer.has_model, offer.max_model_len) == ("vllm", True, True, 8192)
    assert offer.detail == ""
    assert remote.offer("qwen3-8b:Q4_K_M").has_model
    unmapped = remote.offer("gemma-3-270m")
    assert (unmapped.up, unmapped.has_model) == (True, False)
    assert "isn't mapped" in unmapped.detail


async def test_a_mapped_model_must_be_served(make: Make) -> None:
    async with FakeVllm(models=("other",)) as fake:
        remote = make(fake.url)
        await remote.probe()
    offer = remote.offer("qwen3-8b")
    assert (offer.up, offer.has_model) == (True, False)
    assert DEFAULT_MODEL in offer.detail


async def test_the_very_same_name_needs_no_mapping(make: Make) -> None:
    async with FakeVllm(models=("qwen3-8b",)) as fake:
        remote = make(fake.url, models={})
        assert remote.model_for("qwen3-8b") is None
        await remote.probe()
    assert remote.model_for("qwen3-8b") == "qwen3-8b"
    assert remote.model_for("qwen3-8b:Q4_K_M") == "qwen3-8b"
    assert remote.offer("qwen3-8b").has_model


async def test_a_wrong_key_is_told_apart_and_never_shown(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with FakeVllm(key="right") as fake:
        remote = make(fake.url, api_key_env="KEY", env={"KEY": SECRET})
        seen = await remote.probe()
        assert fake.asked("/v1/models")[0].headers["Authorization"] == f"Bearer {SECRET}"
        assert fake.asked("/metrics") == []
    assert seen.state == "down"
    assert seen.error == "it refuses the key (HTTP 401: Unauthorized)"
    assert SECRET not in repr(seen) + repr(seen.to_json()) + caplog.text + repr(remote.offer("qwen3-8b"))


async def test_the_key_is_read_anew_each_time_and_goes_to_v1_only(make: Make) -> None:
    env: dict[str, str] = {}
    async with FakeVllm(key="right") as fake:
        remote = make(fake.url, api_key_env="KEY", env=env)
        missing = await remote.probe()
        assert missing.state == "down"
        assert "KEY isn't set" in missing.notes[0]
        assert remote.headers() == {}
        env["KEY"] = "right\n"
        assert (await remote.probe()).state == "up"
        assert remote.snapshot.notes == ()
        assert remote.headers() == {"Authorization": "Bearer right"}
        assert len(fake.asked("/metrics")) == len(fake.asked("/version")) == 1
        assert all(
            "Authorization" not in one.headers for one in fake.asked("/metrics") + fake.asked("/version")
        )


async def test_a_key_that_no_header_can_carry_is_not_sent(make: Make) -> None:
    remote = make("http://127.0.0.1:9/v1", api_key_env="KEY", env={"KEY": "a\r\nX-Evil: b"})
    assert remote.headers() == {}


async def test_missing_metrics_are_unknown_not_zero(make: Make) -> None:
    async with FakeVllm() as fake:
        fake.faults.metrics_missing = True
        seen = await make(fake.url).probe()
    assert (seen.state, seen.waiting, seen.running) == ("up", None, None)


async def test_down_and_up_again_keeps_what_it_serves(make: Make) -> None:
    async with FakeVllm() as fake:
        remote = make(fake.url)
        await remote.probe()
        await fake.refuse()
        down = await remote.probe()
        assert (down.state, down.error, down.latency_ms, down.waiting) == (
            "down",
            "connection refused",
            None,
            None,
        )
        assert down.models == (ServedModel(DEFAULT_MODEL, 4096),)
        assert remote.offer("qwen3-8b").detail == "connection refused"
        assert not remote.offer("qwen3-8b").up
        await fake.listen()
        assert (await remote.probe()).state == "up"
        assert remote.offer("qwen3-8b").up


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (web.Response(status=500, text="oops"), "HTTP 500: oops"),
        (web.Response(status=200, text="<html>"), "not a list of models"),
        (web.Response(status=200, text='{"data": 3}'), "not a list of models"),
        (web.Response(status=404, text="{}"), "/v1"),
        (web.Response(status=302, headers={"Location": "http://127.0.0.1:1/x"}), "redirects to http://127.0.0.1:1/x"),
        (web.Response(status=200, body=b"x" * (2 << 20)), "ValueError"),
    ],
)  # fmt: skip
async def test_other_answers_are_told_in_words(make: Make, answer: web.Response, words: str) -> None:
    async def models(request: web.Request) -> web.Response:
        return answer

    async with _serving(models) as url:
        seen = await make(url).probe()
    assert seen.state == "down"
    assert seen.error is not None
    assert words in seen.error


async def test_another_supplier_may_have_no_list_of_models(make: Make) -> None:
    async def models(request: web.Request) -> web.Response:
        return web.Response(status=404)

    async with _serving(models) as url:
        remote = make(url, kind="openai")
        assert (await remote.probe()).state == "up"
        offer = remote.offer("qwen3-8b")
        assert (offer.up, offer.has_model, offer.max_model_len) == (True, True, None)


async def test_strange_rows_in_the_list_are_skipped(make: Make) -> None:
    async def models(request: web.Request) -> web.Response:
        rows = [3, {}, {"id": None}, {"id": "a", "max_model_len": "many"}, {"id": "b", "max_model_len": True}]
        return web.json_response({"data": rows})

    async with _serving(models) as url:
        seen = await make(url).probe()
    assert seen.models == (ServedModel("a", None), ServedModel("b", None))


async def test_looks_at_the_same_time_share_one_request(make: Make) -> None:
    async with FakeVllm() as fake:
        remote = make(fake.url)
        await asyncio.gather(*(remote.probe() for _ in range(20)))
        assert len(fake.asked("/v1/models")) == 1


async def test_a_caller_that_gives_up_does_not_spoil_the_look(make: Make) -> None:
    held = asyncio.Event()

    async def models(request: web.Request) -> web.Response:
        await held.wait()
        return web.json_response({"data": []})

    async with _serving(models) as url:
        remote = make(url)
        first, second = asyncio.create_task(remote.probe()), asyncio.create_task(remote.probe())
        await asyncio.sleep(0)
        first.cancel()
        held.set()
        assert (await second).state == "up"


async def test_stopping_in_the_middle_of_a_look_ends_it(make: Make) -> None:
    async with FakeVllm() as fake:
        arrived = asyncio.Event()

        async def models(request: web.Request) -> web.Response:
            arrived.set()
            await asyncio.Event().wait()
            return web.Response()

        async with _serving(models) as url:
            remote = make(url)
            look = asyncio.create_task(remote.probe())
            await arrived.wait()
            await remote.stop()
            assert (await look).state == "unknown"
        assert fake.requests == []


async def test_the_watch_sees_the_remote_go_and_come_back(make: Make) -> None:
    heard: asyncio.Queue[RemoteSnapshot] = asyncio.Queue()
    async with FakeVllm() as fake:
        remote = make(fake.url, interval_s=0.02, on_change=heard.put_nowait)
        await remote.start()
        await remote.start()  # a second start changes nothing
        assert (await heard.get()).state == "up"
        await fake.refuse()
        assert (await heard.get()).state == "down"
        await fake.listen()
        assert (await heard.get()).state == "up"
        await remote.stop()
        await remote.stop()
        assert heard.empty()


async def test_failures_open_the_breaker_and_the_offer_closes(make: Make) -> None:
    async with FakeVllm() as fake:
        remote = make(fake.url)
        await remote.probe()
        for _ in range(3):
            remote.report("5xx")
    assert remote.snapshot.breaker == "open"
    assert remote.snapshot.state == "up"
    offer = remote.offer("qwen3-8b")
    assert not offer.up
    assert "tried again in" in offer.detail


async def test_a_failed_request_makes_the_watch_look_soon(make: Make) -> None:
    async with FakeVllm() as fake:
        remote = make(fake.url, interval_s=3600)
        await remote.start()
        await fake.until(requests=3)
        remote.report("refused")
        async with asyncio.timeout(10):
            await fake.until(requests=6)
        assert len(fake.asked("/v1/models")) == 2


async def test_a_request_is_translated_with_the_remotes_name(make: Make) -> None:
    remote = make("http://127.0.0.1:9/v1/")
    body = {"model": "qwen3-8b", "messages": [], "logit_bias": {"5": 1}, "n_predict": 3}
    made = remote.translate("/v1/chat/completions", body, local_id="qwen3-8b")
    assert (made["model"], made["max_completion_tokens"]) == (DEFAULT_MODEL, 3)
    assert made["logit_bias"] == {"5": 1.0}  # the mapped name says the same model
    assert remote.base_url == "http://127.0.0.1:9/v1"
    with pytest.raises(RemoteError, match="no model for gemma"):
        remote.translate("/v1/chat/completions", body, local_id="gemma")


async def test_the_pool_keeps_the_order_of_the_settings() -> None:
    async with FakeVllm() as one, FakeVllm(key="k") as two:
        settings = [RemoteSettings(name="b", url=one.url), RemoteSettings(name="a", url=two.url)]
        heard: asyncio.Queue[RemoteSnapshot] = asyncio.Queue()
        pool = RemotePool(settings, env={}, on_change=heard.put_nowait)
        assert [one.state for one in pool.snapshot] == ["unknown", "unknown"]
        await pool.start()
        async with asyncio.timeout(10):
            await heard.get()
            await heard.get()
        assert [(seen.name, seen.state) for seen in pool.snapshot] == [("b", "up"), ("a", "down")]
        assert pool.get("a").name == "a"
        with pytest.raises(KeyError):
            pool.get("c")
        await pool.stop()


@pytest.mark.parametrize(
    ("url", "at", "server"),
    [
        ("http://10.0.0.5:8000/v1", "http://10.0.0.5:8000/v1", "http://10.0.0.5:8000"),
        ("http://10.0.0.5:8000/v1/", "http://10.0.0.5:8000/v1", "http://10.0.0.5:8000"),
        ("https://me:pw@h.example/team/v1?x=1#y", "https://h.example/team/v1", "https://h.example/team"),
        ("https://h.example/openai", "https://h.example/openai", "https://h.example/openai"),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1", "http://[::1]:8000"),
    ],
)
def test_addresses(url: str, at: str, server: str) -> None:
    assert (base(url), root(url)) == (at, server)


@pytest.mark.parametrize(
    ("host", "private"),
    [
        ("127.0.0.1", True), ("::1", True), ("10.1.2.3", True), ("192.168.0.9", True), ("172.16.0.1", True),
        ("fe80::1%eth0", True), ("localhost", True), ("gpu-box", True), ("gpu.local", True),
        ("gpu.lan.", True),
        ("mylocal", True), ("8.8.8.8", False), ("2001:4860:4860::8888", False), ("vllm.example.com", False),
        ("evil-local.com", False),
    ],
)  # fmt: skip
def test_which_hosts_are_private(host: str, private: bool) -> None:
    assert is_private(host) is private
    note = notes(f"http://[{host}]/v1" if ":" in host and "%" not in host else f"http://{host}/v1")
    if "%" not in host:
        assert bool(note) is not private


def test_notes_of_an_address() -> None:
    assert notes("https://vllm.example.com/v1") == ()
    assert "unencrypted" in notes("http://vllm.example.com/v1")[0]
    assert "not used" in notes("https://me:pw@vllm.example.com/v1")[0]


class _serving:  # noqa: N801 (reads like a function)
    """A server whose GET /v1/models is this handler."""

    def __init__(self, models: Callable[[web.Request], Any]) -> None:
        app = web.Application()
        app.router.add_get("/v1/models", models)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.2)

    async def __aenter__(self) -> str:
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"

    async def __aexit__(self, *error: object) -> None:
        await self._runner.cleanup()
