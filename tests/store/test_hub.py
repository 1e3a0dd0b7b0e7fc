"""The Hub source: addresses, the token, the stated pin, gated models, mirrors, signed addresses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from appliance import hub
from appliance.catalog import HfSource, ModelRef
from appliance.errors import DownloadError, NotVerified
from appliance.paths import Paths
from appliance.store import Store
from tests.store import server as acts
from tests.store.helpers import QUICK, files_in, made, pin
from tests.store.server import Host

COMMIT = "ab" * 20
HALF = 1_500_000


@pytest.fixture
async def cdn(host: Host) -> AsyncIterator[Host]:
    """A second server, to which the Hub redirects."""
    server = Host(host.body)
    runner = await server.start()
    yield server
    await runner.cleanup()


@pytest.fixture
def hub_store(paths: Paths, host: Host) -> Store:
    """A store whose Hub is the test server, with a token."""
    return Store(paths, env={"HF_ENDPOINT": host.url + "/", "HF_TOKEN": "hf_secret"}, limits=QUICK)


def at_hub(body: bytes, name: str = "sub dir/tiny.gguf") -> ModelRef:
    return made(HfSource(kind="hf", repo="owner/repo", revision=COMMIT), pin(name, body))


async def test_the_address_is_made_of_repo_commit_and_path(hub_store: Store, host: Host) -> None:
    stored = await hub_store.pull(at_hub(host.body))
    assert host.requests[0].raw_path == f"/owner/repo/resolve/{COMMIT}/sub%20dir/tiny.gguf"
    assert stored.main.name == "tiny.gguf"


async def test_the_token_stays_with_the_hub(hub_store: Store, host: Host, cdn: Host) -> None:
    host.acts = [acts.redirect(f"{cdn.url}/blob?signature=1")]
    stored = await hub_store.pull(at_hub(host.body))
    assert stored.main.read_bytes() == host.body
    assert host.requests[0].headers["Authorization"] == "Bearer hf_secret"
    assert "Authorization" not in cdn.requests[0].headers


async def test_no_secret_reaches_disk_or_log(
    hub_store: Store, host: Host, cdn: Host, paths: Paths, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "appliance")
    host.acts = [acts.redirect(f"{cdn.url}/blob?signature=topsecret")]
    cdn.acts = [acts.cut(HALF), acts.status(404)]
    host.acts.append(acts.status(404))
    with pytest.raises(DownloadError) as caught:
        await hub_store.pull(at_hub(host.body))
    written = [path.read_bytes() for path in paths.models.rglob("*") if path.is_file()]
    told = caplog.text.encode() + str(caught.value).encode()
    for text in [*written, told]:
        assert b"hf_secret" not in text
        assert b"topsecret" not in text


async def test_an_expired_signed_address_is_resolved_again_once(
    hub_store: Store, host: Host, cdn: Host
) -> None:
    host.acts = [acts.redirect(f"{cdn.url}/one"), acts.redirect(f"{cdn.url}/two")]
    cdn.acts = [acts.status(403)]
    await hub_store.pull(at_hub(host.body))
    assert [r.path for r in cdn.requests] == ["/one", "/two"]

    host.acts = [acts.redirect(f"{cdn.url}/x")] * 5
    cdn.acts = [acts.status(403)] * 5
    with pytest.raises(DownloadError, match="403"):
        await hub_store.pull(at_hub(host.body, "other.gguf"))
    assert len(cdn.requests) == 4


async def test_a_resume_sends_no_if_range_since_the_commit_is_pinned(hub_store: Store, host: Host) -> None:
    host.acts = [acts.cut(HALF)]
    await hub_store.pull(at_hub(host.body))
    assert host.ranges == ["bytes=0-3145727", f"bytes={HALF}-3145727"]
    assert "If-Range" not in host.requests[1].headers


@pytest.mark.parametrize(
    "stated",
    [
        {"X_Linked_Etag": '"' + "00" * 32 + '"'},
        {"X_Linked_Size": "7"},
        {"X_Repo_Commit": "cd" * 20},
    ],
)
async def test_a_hub_that_states_another_pin_is_refused_before_the_first_byte(
    hub_store: Store, host: Host, cdn: Host, stated: dict[str, str]
) -> None:
    host.acts = [acts.redirect(f"{cdn.url}/blob", **stated)]
    with pytest.raises(NotVerified, match="nothing was fetched"):
        await hub_store.pull(at_hub(host.body))
    assert hub_store.leftovers() == ()


async def test_a_gated_model_names_the_page(hub_store: Store, host: Host) -> None:
    host.acts = [acts.status(403, X_Error_Code="GatedRepo")]
    with pytest.raises(DownloadError) as caught:
        await hub_store.pull(at_hub(host.body))
    assert caught.value.hint is not None
    assert f"{host.url}/owner/repo" in caught.value.hint


async def test_redirects_in_circles_end(hub_store: Store, host: Host) -> None:
    host.acts = [acts.redirect("/again")] * 30
    with pytest.raises(DownloadError, match="circles"):
        await hub_store.pull(at_hub(host.body))
    assert len(host.requests) == QUICK.redirects + 1


async def test_a_mirror_without_any_hub_header_will_do(paths: Paths, host: Host) -> None:
    host.etag = None
    store = Store(paths, env={"HF_ENDPOINT": host.url}, limits=QUICK)
    assert (await store.pull(at_hub(host.body))).main.read_bytes() == host.body
    assert "Authorization" not in host.requests[0].headers
    assert files_in(paths.models) == []


class TestTheToken:
    def test_variables_come_before_the_file(self, tmp_path: Path) -> None:
        (tmp_path / "token").write_text("from-file\n")
        env = {"HF_HOME": str(tmp_path)}
        assert hub.token(env) == "from-file"
        assert hub.token(env | {"HF_TOKEN": " direct "}) == "direct"
        assert hub.token(env | {"HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}) is None
        assert hub.token({"HF_HOME": str(tmp_path / "none")}) is None

    def test_the_endpoint_is_read_at_every_call(self) -> None:
        assert hub.endpoint({"HF_ENDPOINT": "https://mirror.example/hf/"}) == "https://mirror.example/hf"
        assert hub.endpoint({"HF_ENDPOINT": ""}).startswith("https://")
