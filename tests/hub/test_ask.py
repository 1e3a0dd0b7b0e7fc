"""What the Hub is asked, what its answers become, and how each refusal is told."""

from __future__ import annotations

import asyncio
import hashlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance import hub as room
from appliance.errors import ApplianceError, Gated, HubError, HubOffline, NotOnHub, UsageError
from tests.hub import server
from tests.hub.server import Hub

Env = dict[str, str]
BODY = b"GGUF" + bytes(96)
NAME = "owner/tiny-GGUF"


@pytest.fixture(autouse=True)
def _repo(hub: Hub) -> None:
    repo = hub.add(
        NAME, downloads=7, likes=3, gguf={"total": 1000, "architecture": "llama", "context_length": 64}
    )
    repo.commit({"tiny-Q4_K_M.gguf": BODY, "README.md": b"x", "sub/tiny-Q8_0.gguf": BODY * 2})


def test_a_branch_becomes_a_commit_with_sizes_and_hashes(hub: Hub, env: Env) -> None:
    found = room.look(NAME, env=env)
    assert found.commit == hub.repositories[NAME].branches["main"]
    assert [(f.path, f.size, f.sha256) for f in found.files] == [
        ("sub/tiny-Q8_0.gguf", 200, hashlib.sha256(BODY * 2).hexdigest()),
        ("tiny-Q4_K_M.gguf", 100, hashlib.sha256(BODY).hexdigest()),
    ]
    assert (found.license, found.gated, found.downloads, found.likes) == ("apache-2.0", False, 7, 3)
    assert (found.arch, found.context, found.params) == ("llama", 64, 1000)
    assert found.page == f"{hub.url}/{NAME}"
    assert len(hub.requests) == 1


def test_an_old_commit_and_a_branch_with_a_slash_are_reached(hub: Hub, env: Env) -> None:
    repo = hub.repositories[NAME]
    old = repo.branches["main"]
    repo.commit({"new-Q4_0.gguf": BODY})
    other = repo.commit({"pr-Q4_0.gguf": BODY}, "refs/pr/1")
    assert [f.path for f in room.look(NAME, old, env=env).files] == ["sub/tiny-Q8_0.gguf", "tiny-Q4_K_M.gguf"]
    assert [f.path for f in room.look(NAME, env=env).files] == ["new-Q4_0.gguf"]
    assert room.look(NAME, "refs/pr/1", env=env).commit == other


def test_a_mirror_that_leaves_hashes_out_is_asked_for_the_files(hub: Hub, env: Env) -> None:
    hub.terse = True
    found = room.look(NAME, env=env)
    assert [f.sha256 for f in found.files] == [hashlib.sha256(b).hexdigest() for b in (BODY * 2, BODY)]
    assert hub.paths[-1] == f"POST /api/models/{NAME}/paths-info/{found.commit}"


def test_a_hash_that_nobody_states_stays_unknown(hub: Hub, env: Env) -> None:
    hub.hashless = True
    assert [(f.size, f.sha256, f.pinnable) for f in room.look(NAME, env=env).files] == [
        (200, None, False),
        (100, None, False),
    ]


def test_search_gives_the_most_fetched_first(hub: Hub, env: Env) -> None:
    hub.add("other/tiny-two-GGUF", downloads=99, gated="manual", license="llama3.1")
    found = room.search("tiny", limit=5, env=env)
    assert [(f.repo, f.downloads, f.gated, f.license) for f in found] == [
        ("other/tiny-two-GGUF", 99, True, "llama3.1"),
        (NAME, 7, False, "apache-2.0"),
    ]
    assert found[0].updated == "2026-10-31"
    assert hub.requests[0].query["filter"] == "gguf"
    assert room.search("nothing so", env=env) == ()


def test_a_broken_row_of_a_search_hides_no_other(hub: Hub, env: Env) -> None:
    rows = [
        {"id": 7}, {"no": "id"}, "text", {"id": "a/b", "lastModified": "yesterday"}, {"id": "own/good"},
        {"id": "a/" + "x" * 300}, {"id": "own/odd", "tags": 5, "cardData": ["x"], "downloads": "many"},
    ]  # fmt: skip
    hub.acts = [server.says(200, json.dumps(rows), "application/json")]
    found = room.search("x", env=env)
    assert [(repo.repo, repo.downloads) for repo in found] == [("own/good", None), ("own/odd", None)]


def test_who_stated_it_is_known(hub: Hub, env: Env) -> None:
    host = hub.url.removeprefix("http://")
    found = room.look(NAME, env=env)
    assert (found.mirror, found.stated_by) == (host, f"{host} (HF_ENDPOINT)")
    for base in ("https://huggingface.co", "https://HuggingFace.co/"):
        assert room.mirror_of(room.endpoint({"HF_ENDPOINT": base})) is None
    assert room.mirror_of(room.endpoint({})) is None
    assert room.mirror_of("https://mirror.example/hf") == "mirror.example"


class TestTheToken:
    def test_it_goes_to_the_endpoint(self, hub: Hub, env: Env) -> None:
        hub.add("me/hidden", private=True, members=frozenset({"hf_me"})).commit({"a-Q4_0.gguf": BODY})
        assert len(room.look("me/hidden", env=env | {"HF_TOKEN": "hf_me"}).files) == 1
        assert hub.requests[0].headers["Authorization"] == "Bearer hf_me"

    def test_it_does_not_go_where_the_endpoint_leads(self, hub: Hub, env: Env) -> None:
        elsewhere = Hub()
        elsewhere.repositories = hub.repositories
        with elsewhere.running() as url:
            hub.acts = [server.moves(f"{url}/api/models/{NAME}?blobs=True")]
            room.look(NAME, env=env | {"HF_TOKEN": "hf_me"})
            hub.next_page = f"{url}/api/models?search=tiny"
            room.search("tiny", limit=9, env=env | {"HF_TOKEN": "hf_me"})
        assert len(elsewhere.requests) == 2
        assert all("Authorization" not in request.headers for request in elsewhere.requests)

    def test_without_one_nothing_is_sent(self, hub: Hub, env: Env, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HF_TOKEN", "hf_of_the_process")
        room.look(NAME, env=env)
        assert "Authorization" not in hub.requests[0].headers

    @pytest.mark.parametrize("token", ["hf_a\nX-Evil: 1", "hf_a\x00b", "hf_a b", "hf_é"])
    def test_one_that_can_be_none_is_said_but_not_shown(
        self, hub: Hub, env: Env, tmp_path: Path, token: str
    ) -> None:
        with pytest.raises(UsageError, match="HF_TOKEN is malformed") as caught:
            room.look(NAME, env=env | {"HF_TOKEN": token})
        assert "hf_" not in str(caught.value)
        (tmp_path / "token").write_text(token, encoding="utf-8")
        with pytest.raises(UsageError, match=str(tmp_path / "token")):
            room.token({"HF_TOKEN_PATH": str(tmp_path / "token")})
        assert hub.requests == []
        assert room.token({"HF_TOKEN": " hf_good\n"}) == "hf_good"


def refused(call: Callable[[], object]) -> HubError:
    with pytest.raises(HubError) as caught:
        call()
    return caught.value


class TestRefusals:
    def test_gated_names_the_page_and_comes_before_not_found(self, hub: Hub, env: Env) -> None:
        hub.acts = [server.says(403, X_Error_Code="GatedRepo", X_Error_Message="restricted")]
        error = refused(lambda: room.look(NAME, env=env))
        assert isinstance(error, Gated)
        assert f"{hub.url}/{NAME}" in (error.hint or "")

    def test_a_repository_that_is_not_there(self, env: Env) -> None:
        error = refused(lambda: room.look("owner/none", env=env | {"HF_TOKEN": "hf_me"}))
        assert isinstance(error, NotOnHub)
        assert "owner/none" in error.message

    def test_401_without_and_with_a_token_on_a_plain_endpoint(self, hub: Hub, env: Env) -> None:
        hub.acts = [server.says(401), server.says(401, X_Error_Message="Invalid credentials")]
        assert "HF_TOKEN" in (refused(lambda: room.look(NAME, env=env)).hint or "")
        error = refused(lambda: room.look(NAME, env=env | {"HF_TOKEN": "hf_old"}))
        assert "does not accept the token" in error.message
        assert "hf_old" not in str(error)

    def test_a_revision_that_is_not_there(self, env: Env) -> None:
        error = refused(lambda: room.look(NAME, "v9\x1b[31m", env=env))
        assert isinstance(error, NotOnHub)
        assert "no revision 'v9[31m'" in error.message

    def test_too_often_is_said_at_once_with_the_wait(self, hub: Hub, env: Env) -> None:
        hub.acts = [server.says(429, ratelimit='"api";r=0;t=55'), server.says(429, Retry_After="7")]
        began = time.monotonic()
        assert "55 s" in (refused(lambda: room.look(NAME, env=env)).hint or "")
        assert "7 s" in (refused(lambda: room.search("tiny", env=env)).hint or "")
        assert time.monotonic() - began < 5
        assert len(hub.requests) == 2

    @pytest.mark.parametrize("status", [500, 503])
    def test_a_broken_server_is_named(self, hub: Hub, env: Env, status: int) -> None:
        hub.acts = [server.says(status, "boom\x1b]0;evil\x07")]
        error = refused(lambda: room.search("tiny", env=env))
        assert str(status) in error.message
        assert "127.0.0.1" in error.message
        assert "\x1b" not in str(error)
        assert len(hub.requests) == 1

    def test_disabled_and_forbidden(self, hub: Hub, env: Env) -> None:
        hub.acts = [
            server.says(403, X_Error_Message="Access to this resource is disabled."),
            server.says(403, X_Error_Message="your token may not"),
        ]
        assert "disabled" in refused(lambda: room.look(NAME, env=env)).message
        assert "your token may not" in (refused(lambda: room.look(NAME, env=env)).cause or "")

    @pytest.mark.parametrize(
        ("body", "kind"),
        [
            ("<html>Sign in to the network</html>", "text/html"),
            ('{"hello": "world"}', "application/json"),
            ('{"id": "owner/tiny-GGUF", "sha": "main"}', "application/json"),
            ('{"id": "a/b", "sha": "' + "ab" * 20 + '", "siblings": [{"name": "x"}]}', "application/json"),
            ("[1, 2]", "application/json"),
            ("[" * 100_000, "application/json"),
            ('{"a":' * 100_000, "application/json"),
        ],
    )
    def test_an_answer_that_is_not_the_hubs(self, hub: Hub, env: Env, body: str, kind: str) -> None:
        hub.acts = [server.says(200, body, kind)]
        assert "does not answer like the Hub" in refused(lambda: room.look(NAME, env=env)).message

    @pytest.mark.parametrize("body", ["<html>", '{"hello": "world"}', "[1, 2]", "[" * 100_000, "7"])
    def test_a_search_that_is_not_the_hubs(self, hub: Hub, env: Env, body: str) -> None:
        hub.acts = [server.says(200, body, "application/json")]
        assert "does not answer like the Hub" in refused(lambda: room.search("x", env=env)).message

    def test_circles_end(self, hub: Hub, env: Env) -> None:
        hub.acts = [server.moves(f"{hub.url}/api/models/{NAME}")] * 50
        assert "circles" in refused(lambda: room.look(NAME, env=env)).message

    def test_a_name_that_is_none_asks_nobody(self, hub: Hub, env: Env) -> None:
        for name in ("qwen", "a/b/c", "a/..", "-a/b", "a/b?x=1"):
            with pytest.raises(UsageError):
                room.look(name, env=env)
        assert hub.requests == []


class TestTheWayThere:
    def test_offline_asks_nobody(self, hub: Hub, env: Env) -> None:
        error = refused(lambda: room.look(NAME, env=env | {"HF_HUB_OFFLINE": "1"}))
        assert isinstance(error, HubOffline)
        assert "HF_HUB_OFFLINE" in error.message
        assert hub.requests == []
        room.look(NAME, env=env | {"HF_HUB_OFFLINE": "0"})

    def test_the_endpoint_is_read_at_each_call(self, hub: Hub, env: Env) -> None:
        second = Hub()
        second.add("only/here").commit({"a-Q8_0.gguf": BODY})
        with second.running() as url:
            room.look(NAME, env=env)
            assert room.look("only/here", env={"HF_ENDPOINT": url + "/"}).repo == "only/here"

    def test_nobody_there(self, env: Env) -> None:
        dead = Hub()
        with dead.running() as url:
            pass
        error = refused(lambda: room.look(NAME, env={"HF_ENDPOINT": url}))
        assert error.message == "127.0.0.1 can't be reached."
        assert error.cause == "It refused the connection."

    def test_a_name_that_does_not_resolve(self) -> None:
        error = refused(lambda: room.look(NAME, env={"HF_ENDPOINT": "http://hub.invalid"}))
        assert error.message == "hub.invalid can't be reached."
        assert error.cause == "Its name can't be resolved."

    @pytest.mark.parametrize("act", [server.silent(5), server.drips()])
    def test_a_slow_server_ends_at_the_deadline(self, hub: Hub, env: Env, act: server.Act) -> None:
        hub.acts = [act]
        began = time.monotonic()
        error = refused(lambda: room.look(NAME, env=env, seconds=0.4))
        assert 0.3 < time.monotonic() - began < 3
        assert "in time" in (error.cause or "")

    @pytest.mark.parametrize(
        "bad",
        [
            "huggingface.co", "ftp://host", "https://me:secret@host", "https://host?x=secret", "http://[::1",
            "http://127.0.0.1:99999", "http://ho st", "http://host\n.example", "http://", "http://host#secret",
        ],
    )  # fmt: skip
    def test_an_endpoint_that_is_no_address_or_holds_a_password(self, bad: str) -> None:
        env = {"HF_ENDPOINT": bad}
        for call in (lambda: room.look(NAME, env=env), lambda: room.search("x", env=env)):
            with pytest.raises(UsageError, match="HF_ENDPOINT") as caught:
                call()
            assert "secret" not in str(caught.value)

    def test_the_proxy_of_the_environment_is_used(self, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("NO_PROXY", "")
        monkeypatch.setenv("no_proxy", "")
        monkeypatch.setenv("HTTP_PROXY", hub.url)
        monkeypatch.setenv("http_proxy", hub.url)
        assert room.look(NAME, env={"HF_ENDPOINT": "http://far.invalid"}).repo == NAME
        assert hub.requests[0].headers["Host"] == "far.invalid"

    def test_questions_at_the_same_time_keep_apart(self, hub: Hub, env: Env) -> None:
        second, seen = Hub(), list[str]()
        second.add("only/here").commit({"a-Q8_0.gguf": BODY})
        with second.running() as url:
            both = [(NAME, env), ("only/here", {"HF_ENDPOINT": url})] * 4
            threads = [
                threading.Thread(target=lambda r=repo, e=at: seen.append(room.look(r, env=e).repo))
                for repo, at in both
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(20)
        assert sorted(seen) == sorted(repo for repo, _ in both)


async def test_a_cancel_does_not_wait_for_the_answer(hub: Hub, env: Env) -> None:
    hub.acts = [server.silent(5)]
    task = asyncio.create_task(room.aside(room.look, NAME, env=env, seconds=4))
    async with asyncio.timeout(3):
        await hub.asked()
    began = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - began < 1


async def test_an_error_and_a_result_come_through(env: Env) -> None:
    assert (await room.aside(room.look, NAME, env=env)).repo == NAME
    with pytest.raises(ApplianceError):
        await room.aside(room.look, "owner/none", env=env)


def test_the_library_is_imported_only_when_asked() -> None:
    code = "import sys, appliance.hub; print('huggingface_hub' in sys.modules, 'httpx2' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
