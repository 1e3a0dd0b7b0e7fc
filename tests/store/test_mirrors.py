"""An ordered list of places for one file: pins decide what is accepted, so any of them may be tried."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace

import pytest

from appliance.catalog import HfSource, UrlSource
from appliance.errors import DownloadError, NotVerified
from appliance.paths import Paths
from appliance.settings import Downloads
from appliance.store import Store
from appliance.store.places import places_of
from tests.store import server as acts
from tests.store.cases import BODY, CHUNK, LIMITS, OTHER, SIZE
from tests.store.helpers import files_in, made, pin
from tests.store.server import Act, Host

COMMIT = "ab" * 20
REF = made(HfSource(kind="hf", repo="owner/repo", revision=COMMIT), pin("tiny.gguf", BODY))
SOURCE = REF.variant.source
HUB = "https://huggingface.co"


@pytest.fixture
async def second() -> AsyncIterator[Host]:
    """The place after `host`."""
    server = Host(BODY)
    runner = await server.start()
    yield server
    await runner.cleanup()


def store_of(paths: Paths, first: Host, *mirrors: str, token: str = "hf_secret") -> Store:
    """A store whose endpoint is `first`."""
    env = {"HF_ENDPOINT": first.url, "HF_TOKEN": token}
    return Store(paths, env=env, limits=LIMITS, downloads=Downloads(mirrors=mirrors))


class TestTheOrder:
    @pytest.mark.parametrize(
        ("env", "mirrors", "bases"),
        [
            ({}, (), [HUB]),
            ({}, ("https://a/hf/", "https://b"), ["https://a/hf", "https://b", HUB]),
            ({"HF_ENDPOINT": "https://corp/"}, ("https://b",), ["https://corp", "https://b"]),
            ({"HF_ENDPOINT": "https://corp"}, ("https://corp/", "https://b"), ["https://corp", "https://b"]),
            ({}, (HUB, "https://b"), [HUB, "https://b"]),
        ],
    )
    def test_of_bases(self, env: Mapping[str, str], mirrors: tuple[str, ...], bases: list[str]) -> None:
        assert isinstance(SOURCE, HfSource)
        found = places_of(SOURCE, REF.variant.main, env, mirrors)
        assert [place.url for place in found] == [
            f"{base}/owner/repo/resolve/{COMMIT}/tiny.gguf" for base in bases
        ]

    def test_only_the_endpoint_gets_the_token(self) -> None:
        assert isinstance(SOURCE, HfSource)
        for env, mirrors in (
            ({}, ("https://a", "https://b")),
            ({"HF_ENDPOINT": "https://corp"}, ("https://a", HUB)),
        ):
            found = places_of(SOURCE, REF.variant.main, env | {"HF_TOKEN": "hf_secret"}, mirrors)
            home = env.get("HF_ENDPOINT", HUB)
            assert {place.url: place.token for place in found if place.token} == {
                f"{home}/owner/repo/resolve/{COMMIT}/tiny.gguf": "hf_secret"
            }

    def test_an_address_has_no_mirror(self) -> None:
        source = UrlSource(kind="url", url="https://a/b.gguf")
        found = places_of(source, REF.variant.main, {}, ("https://m",))
        assert [place.url for place in found] == [source.url]


@pytest.mark.parametrize(
    "usual",
    [
        pytest.param(acts.status(404), id="404"),
        pytest.param(acts.status(403), id="403"),
        pytest.param(acts.status(503), id="503 again and again"),
        pytest.param(acts.drop(0), id="broken off"),
        pytest.param(acts.says(b"<html>", "text/html"), id="a page"),
        pytest.param(acts.says(bytes(SIZE)), id="no GGUF"),
        pytest.param(acts.shorter, id="another size"),
        pytest.param(acts.status(302, Location="/x", X_Linked_Etag="0" * 64), id="another hash is stated"),
        pytest.param(acts.status(429, Retry_After="9999"), id="a long wait"),
        pytest.param(acts.silent, id="silence"),
    ],
)
async def test_a_place_that_fails_gives_way(paths: Paths, host: Host, second: Host, usual: Act) -> None:
    host.usual = usual
    stored = await store_of(paths, host, second.url).pull(REF)
    assert stored.main.read_bytes() == BODY
    assert second.sent == SIZE
    assert all("Authorization" not in request.headers for request in second.requests)
    assert host.requests[0].headers["Authorization"] == "Bearer hf_secret"


async def test_what_the_first_brought_is_kept_for_the_next(paths: Paths, host: Host, second: Host) -> None:
    host.acts, host.usual = [acts.honest] * 6, acts.status(404)
    stored = await store_of(paths, host, second.url).pull(REF)
    assert stored.main.read_bytes() == BODY
    assert host.sent + second.sent == SIZE
    assert host.sent >= 4 * LIMITS.segment


async def test_one_that_cannot_be_reached_gives_way(paths: Paths, host: Host, second: Host) -> None:
    host.url = "http://127.0.0.1:9"
    assert (await store_of(paths, host, second.url).pull(REF)).main.read_bytes() == BODY


async def test_the_first_is_enough(paths: Paths, host: Host, second: Host) -> None:
    host.body = BODY
    await store_of(paths, host, second.url).pull(REF)
    assert second.requests == []


async def test_when_all_fail_one_error_says_what_each_said(paths: Paths, host: Host, second: Host) -> None:
    host.usual, second.usual = acts.status(404), acts.says(b"<html>Log in", "text/html")
    with pytest.raises(DownloadError) as caught:
        await store_of(paths, host, second.url, "http://localhost:9").pull(REF)
    assert "any of 3 places" in caught.value.message
    assert caught.value.cause is not None
    first, page, dead = caught.value.cause.splitlines()
    assert "404" in first
    assert "Log in" in page
    assert dead.startswith("localhost: ")
    assert "hf_secret" not in str(caught.value)
    assert caught.value.hint
    assert files_in(paths.models) == []


class TestRepair:
    async def test_another_place_is_asked_first(self, paths: Paths, host: Host, second: Host) -> None:
        host.body, host.flips = BODY, {7 * CHUNK: 99}
        stored = await store_of(paths, host, second.url).pull(REF)
        assert stored.main.read_bytes() == BODY
        assert (host.sent, second.sent) == (SIZE, 8 * CHUNK)

    async def test_a_place_with_another_file_is_replaced_by_one_that_has_it(
        self, paths: Paths, host: Host, second: Host
    ) -> None:
        host.body = OTHER
        stored = await store_of(paths, host, second.url).pull(REF)
        assert stored.main.read_bytes() == BODY
        assert (host.sent, second.sent) == (SIZE, SIZE)

    async def test_the_place_that_delivered_is_asked_when_the_other_fails(
        self, paths: Paths, host: Host, second: Host
    ) -> None:
        host.body, host.flips = BODY, {2 * CHUNK: 1}
        second.usual = acts.status(404)
        stored = await store_of(paths, host, second.url).pull(REF)
        assert stored.main.read_bytes() == BODY
        assert host.sent == SIZE + 3 * CHUNK

    async def test_what_no_place_can_mend_is_quarantined(
        self, paths: Paths, host: Host, second: Host
    ) -> None:
        host.body = second.body = OTHER
        store = store_of(paths, host, second.url)
        with pytest.raises(NotVerified, match="not the file that the catalog pins"):
            await store.pull(REF)
        assert [left.kind for left in store.leftovers()] == ["quarantined"]
        assert host.sent + second.sent == 2 * SIZE


async def test_a_company_that_names_its_endpoint_is_not_passed_by(paths: Paths, host: Host) -> None:
    host.usual = acts.status(404)
    quick = replace(LIMITS, attempts=1)
    store = Store(paths, env={"HF_ENDPOINT": host.url}, limits=quick)
    with pytest.raises(DownloadError) as caught:
        await store.pull(REF)
    assert "huggingface" not in str(caught.value)
