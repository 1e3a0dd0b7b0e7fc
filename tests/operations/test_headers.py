"""The header of anything that can be planned: here, in the catalog, at the Hub, at an address, in a file."""

from __future__ import annotations

import asyncio
import os
import socket
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance.errors import (
    ApplianceError,
    DownloadError,
    Gated,
    GgufError,
    HubOffline,
    ModelMissing,
    NotOnHub,
    NotVerified,
    UnknownModel,
    UsageError,
)
from appliance.gguf import read_header, read_slim
from appliance.operations.models import Library
from appliance.operations.plans import header_cache, headers
from appliance.operations.plans.answer import answer
from appliance.operations.plans.header_cache import HeaderCache
from appliance.operations.plans.headers import NoHeader, Subject, subject_of
from appliance.paths import Paths
from appliance.settings import Downloads, Settings
from tests.engines.clip_file import Vision, write_clip
from tests.gguf.splitting import split_header
from tests.gguf.test_remote import Ranges
from tests.gguf.writer import model
from tests.hub import server
from tests.hub.server import Hub, Repository
from tests.operations.hubhouse import body, entry, library, sha256
from tests.web.server import Request, Server, head

Env = dict[str, str]
REPO, FILE = "owner/tiny-GGUF", "tiny-Q4_K_M.gguf"
Q4, Q8, OTHER = body(4), body(8, file_type=7), body(5, n_bytes=8192)
REF = "tiny:Q4_K_M"
SMOL = "smollm2-135m-instruct"


@pytest.fixture
def repo(hub: Hub, paths: Paths) -> Repository:
    """A repository of which the user's catalog lists the Q4_K_M of its first commit."""
    made = hub.add(REPO)
    commit = made.commit({FILE: Q4, "tiny-Q8_0.gguf": Q8})
    paths.user_catalog.write_text(entry("tiny", REPO, commit, FILE, Q4))
    return made


@pytest.fixture
def mine(paths: Paths, repo: Repository) -> Library:
    return library(paths)


def files_of(paths: Paths) -> list[Path]:
    folder = paths.cache / "headers"
    return sorted(folder.iterdir()) if folder.exists() else []


class TestOfTheCatalog:
    async def test_what_is_not_here_is_read_over_ranges_and_kept_under_its_pin(
        self, mine: Library, hub: Hub, env: Env, paths: Paths
    ) -> None:
        subject = await subject_of(mine, "tiny", env=env)
        assert (subject.label, subject.sha256, subject.here) == (REF, sha256(Q4), False)
        assert subject.key != subject.sha256
        assert subject.header.metadata["general.name"] == "Inner Name"
        assert {request.method for request in hub.requests} == {"GET"}
        assert all("Range" in request.headers for request in hub.requests)
        (kept,) = files_of(paths)
        assert kept.name == f"{sha256(Q4)}.gguf-header"
        assert kept.stat().st_mode & 0o777 == 0o600

    async def test_a_second_look_needs_no_network(
        self, mine: Library, hub: Hub, env: Env, paths: Paths
    ) -> None:
        first = await subject_of(mine, "tiny", env=env)
        hub.requests.clear()
        assert await subject_of(mine, "tiny", env=env) == first
        assert hub.requests == []
        assert headers.of_pins(HeaderCache(paths), mine.resolve("tiny")) == first

    async def test_what_was_kept_and_broke_is_read_anew(
        self, mine: Library, hub: Hub, env: Env, paths: Paths
    ) -> None:
        first = await subject_of(mine, "tiny", env=env)
        (kept,) = files_of(paths)
        raw = kept.read_bytes()
        for broken in (b"", raw[:-1], raw[:50] + b"\xff" + raw[51:], raw + b"x"):
            kept.write_bytes(broken)
            hub.requests.clear()
            assert await subject_of(mine, "tiny", env=env) == first
            assert hub.requests
            assert kept.read_bytes() == raw

    async def test_a_quant_that_nobody_listed_is_looked_up_and_not_pinned(
        self, mine: Library, env: Env, paths: Paths
    ) -> None:
        subject = await subject_of(mine, "tiny:q8_0", env=env)
        assert (subject.label, subject.sha256) == ("tiny:Q8_0", sha256(Q8))
        assert not paths.pins.exists()
        with pytest.raises(UnknownModel):
            mine.resolve("tiny:q8_0")

    async def test_nobody_knows_the_name(self, mine: Library, env: Env) -> None:
        with pytest.raises(UnknownModel):
            await subject_of(mine, "nothing-like-it", env=env)

    async def test_a_package_has_no_header_before_it_is_here(self, mine: Library, env: Env) -> None:
        with pytest.raises(NoHeader) as caught:
            await subject_of(mine, SMOL, env=env)
        assert (caught.value.exit_code, caught.value.code) == (4, "model_missing")
        assert caught.value.hint is not None
        assert f"appliance models pull {SMOL}:Q4_1" in caught.value.hint

    async def test_a_source_on_this_disk_that_was_not_taken_in_yet(
        self, mine: Library, env: Env, paths: Paths, tmp_path: Path
    ) -> None:
        (tmp_path / FILE).write_bytes(Q4)
        text = paths.user_catalog.read_text()
        before, _, after = text.partition("source = ")
        rest = after.partition("\n")[2]
        source = f'{{ kind = "file", path = "{tmp_path}" }}'
        paths.user_catalog.write_text(f"{before}source = {source}\n{rest}")
        assert tomllib.loads(paths.user_catalog.read_text())
        subject = await subject_of(library(paths), "tiny", env=env)
        assert (subject.label, subject.sha256, subject.here) == (REF, sha256(Q4), False)
        assert files_of(paths) == []

    async def test_projector_and_model_by_their_roles(
        self, mine: Library, repo: Repository, hub: Hub, env: Env, paths: Paths, tmp_path: Path
    ) -> None:
        shape = Vision("mlp", image=64, patch=16, embd=64, ff=128, heads=2, layers=2, out=576)
        eyes = write_clip(tmp_path / "mmproj-F16.gguf", shape).read_bytes()
        commit = repo.commit({FILE: Q4, "mmproj-F16.gguf": eyes})
        text = entry("tiny", REPO, commit, FILE, Q4)
        pin = f'name = "mmproj-F16.gguf", role = "mmproj", size = {len(eyes)}, sha256 = "{sha256(eyes)}"'
        paths.user_catalog.write_text(text.replace(" }]", f" }}, {{ {pin} }}]"))
        subject = await subject_of(library(paths), "tiny", env=env)
        assert subject.mmproj is not None
        weights = sum(t.n_bytes for t in read_header(tmp_path / "mmproj-F16.gguf").tensors)
        assert subject.mmproj.weights == weights
        assert [part.name for part in subject.parts] == [FILE]


class TestServersThatMisbehave:
    async def refused(self, mine: Library, env: Env, kind: type[ApplianceError]) -> ApplianceError:
        with pytest.raises(kind) as caught:
            await subject_of(mine, "tiny", env=env)
        assert files_of(mine.paths) == []
        return caught.value

    async def test_terms_that_wait_to_be_accepted(self, mine: Library, repo: Repository, env: Env) -> None:
        repo.gated, repo.members = "manual", frozenset({"hf_member"})
        error = await self.refused(mine, env, Gated)
        assert error.hint is not None
        assert f"/{REPO}" in error.hint
        assert error.cause == "No token is set."
        subject = await subject_of(mine, "tiny", env=env | {"HF_TOKEN": "hf_member"})
        assert subject.label == REF

    async def test_a_file_of_another_size_than_its_pin(
        self, mine: Library, repo: Repository, env: Env
    ) -> None:
        commit = next(iter(repo.commits))
        repo.commits[commit] = {FILE: OTHER}
        error = await self.refused(mine, env, NotVerified)
        assert f"{len(OTHER)} bytes" in (error.cause or "")

    async def test_bytes_that_are_no_header(self, mine: Library, repo: Repository, env: Env) -> None:
        repo.commits[next(iter(repo.commits))] = {FILE: b"\xff" * len(Q4)}
        await self.refused(mine, env, GgufError)

    async def test_a_header_that_claims_more_than_there_is(
        self, mine: Library, repo: Repository, env: Env
    ) -> None:
        lie = Q4[:8] + (1 << 40).to_bytes(8, "little") + Q4[16:]
        repo.commits[next(iter(repo.commits))] = {FILE: lie}
        await self.refused(mine, env, GgufError)

    async def test_a_file_that_is_gone(self, mine: Library, repo: Repository, env: Env) -> None:
        repo.commits[next(iter(repo.commits))] = {}
        error = await self.refused(mine, env, DownloadError)
        assert "404" in error.message

    async def test_a_mirror_takes_over_and_is_not_believed_blindly(
        self, mine: Library, repo: Repository, hub: Hub, env: Env
    ) -> None:
        """The Hub is down, the first mirror has another file, the second one is right."""
        wrong, right = Hub(), Hub()
        commit = next(iter(repo.commits))
        for other, raw in ((wrong, OTHER), (right, Q4)):
            other.add(REPO).commits[commit] = {FILE: raw}
        hub.acts = [server.says(503)]
        with wrong.running(), right.running():
            mirrors = Settings(downloads=Downloads(mirrors=(wrong.url, right.url)))
            subject = await subject_of(mine.using(mirrors), "tiny", env=env | {"HF_TOKEN": "hf_secret"})
        assert subject.label == REF
        assert [bool(other.requests) for other in (wrong, right)] == [True, True]
        assert not any("Authorization" in request.headers for request in (*wrong.requests, *right.requests))

    async def test_a_cancel_does_not_wait_for_a_silent_server(
        self, mine: Library, hub: Hub, env: Env
    ) -> None:
        hub.acts = [server.silent(3.0)]
        looking = asyncio.create_task(subject_of(mine, "tiny", env=env))
        await hub.asked()
        looking.cancel()
        began = asyncio.get_running_loop().time()
        with pytest.raises(asyncio.CancelledError):
            await looking
        assert asyncio.get_running_loop().time() - began < 1.5


class TestAtTheHub:
    async def test_a_file_that_no_catalog_lists(
        self, mine: Library, repo: Repository, env: Env, paths: Paths
    ) -> None:
        subject = await subject_of(mine, f"hf:{REPO}/tiny-Q8_0.gguf", env=env)
        assert (subject.label, subject.here) == (f"hf:{REPO}/tiny-Q8_0.gguf", False)
        assert subject.sha256 == sha256(Q8)
        assert [file.name for file in files_of(paths)] == [f"{sha256(Q8)}.gguf-header"]

    async def test_an_earlier_commit_and_its_web_address(
        self, mine: Library, repo: Repository, hub: Hub, env: Env
    ) -> None:
        first = repo.branches["main"]
        repo.commit({FILE: OTHER})
        for name in (f"hf:{REPO}@{first}/{FILE}", f"{hub.url}/{REPO}/blob/{first}/{FILE}"):
            assert (await subject_of(mine, name, env=env)).sha256 == sha256(Q4)
        assert (await subject_of(mine, f"hf:{REPO}/{FILE}", env=env)).sha256 == sha256(OTHER)

    async def test_any_part_of_a_split_set_means_all_of_it(
        self, mine: Library, hub: Hub, env: Env, smollm2_path: Path
    ) -> None:
        parts = split_header(smollm2_path, 3, "big/m-Q4_1")
        stored = {part.name: _grown(part.source, part.size) for part in parts}
        hub.add("owner/big-GGUF").commit(stored)
        subject = await subject_of(mine, f"hf:owner/big-GGUF/{parts[1].name}", env=env)
        assert subject.sha256 == sha256(stored[parts[0].name])
        assert [part.name for part in subject.parts] == [part.name.rpartition("/")[2] for part in parts]
        assert len(subject.header.tensors) == len(read_header(smollm2_path).tensors)

    async def test_a_set_that_is_not_whole(self, mine: Library, hub: Hub, env: Env) -> None:
        hub.add("owner/big-GGUF").commit({"m-Q8_0-00001-of-00002.gguf": Q8})
        with pytest.raises(ModelMissing, match="not whole"):
            await subject_of(mine, "hf:owner/big-GGUF/m-Q8_0-00001-of-00002.gguf", env=env)

    @pytest.mark.parametrize(
        ("name", "kind"),
        [
            (f"hf:{REPO}/nothing.gguf", NotOnHub),
            ("hf:owner/nothing/m.gguf", NotOnHub),
            (f"hf:{REPO}", UsageError),
            (f"hf:{REPO}/README.md", UsageError),
        ],
    )
    async def test_what_is_not_there(
        self, name: str, kind: type[ApplianceError], mine: Library, env: Env
    ) -> None:
        with pytest.raises(kind):
            await subject_of(mine, name, env=env)

    async def test_offline_it_is_not_asked(self, mine: Library, hub: Hub, env: Env) -> None:
        with pytest.raises(HubOffline):
            await subject_of(mine, f"hf:{REPO}/{FILE}", env=env | {"HF_HUB_OFFLINE": "1"})
        assert hub.requests == []


class TestAtAnAddress:
    @pytest.fixture(autouse=True)
    def _no_proxy(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("NO_PROXY", "*")

    async def test_a_file_without_any_pin(self, mine: Library, env: Env, paths: Paths) -> None:
        with Server(Ranges(Q4)) as here:
            subject = await subject_of(mine, f"{here.url}/a%20b/tiny.gguf?x=1", env=env)
        assert (subject.label, subject.sha256, subject.key, subject.here) == ("tiny.gguf", None, None, False)
        assert files_of(paths) == []

    async def test_a_server_without_ranges(self, mine: Library, env: Env) -> None:
        with Server(lambda _, conn: conn.sendall(head(Content_Length=len(Q4)) + Q4)) as here:
            assert (await subject_of(mine, f"{here.url}/m.gguf", env=env)).header.name == "Inner Name"

    async def test_all_parts_of_a_split_set_are_in_its_folder(
        self, mine: Library, env: Env, smollm2_path: Path
    ) -> None:
        parts = split_header(smollm2_path, 2, "m")
        stored = {f"/f/{part.name}": Ranges(_grown(part.source, part.size)) for part in parts}

        def reply(request: Request, conn: socket.socket) -> bool:
            return stored[request.target.partition("?")[0]](request, conn)

        with Server(reply) as here:
            subject = await subject_of(mine, f"{here.url}/f/{parts[1].name}?key=1", env=env)
        assert subject.label == parts[0].name
        assert len(subject.parts) == 2
        assert {request.target.rpartition("?")[2] for request in here.requests} == {"key=1"}


class TestOfFiles:
    async def test_a_file(self, mine: Library, smollm2_path: Path) -> None:
        subject = await subject_of(mine, str(smollm2_path))
        assert (subject.label, subject.sha256, subject.here) == (smollm2_path.name, None, True)
        assert subject.header.tensors == read_header(smollm2_path).tensors

    async def test_any_part_of_a_split_set(self, mine: Library, smollm2_path: Path, tmp_path: Path) -> None:
        parts = split_header(smollm2_path, 2)
        for part in parts:
            (tmp_path / part.name).write_bytes(_grown(part.source, part.size))
        subject = await subject_of(mine, str(tmp_path / parts[1].name))
        assert len(subject.header.tensors) == len(read_header(smollm2_path).tensors)
        (tmp_path / parts[0].name).unlink()
        with pytest.raises(GgufError, match="can't be read"):
            await subject_of(mine, str(tmp_path / parts[1].name))

    async def test_what_it_is_for_is_told_by_its_header(self, mine: Library, tmp_path: Path) -> None:
        (tmp_path / "e.gguf").write_bytes(body(1, arch="bert"))
        assert (await subject_of(mine, str(tmp_path / "e.gguf"))).embedding

    async def test_a_header_without_weights_is_none_of_a_model(self, mine: Library, tmp_path: Path) -> None:
        vocabulary = tmp_path / "ggml-vocab.gguf"
        vocabulary.write_bytes(model("llama", {"block_count": 2, "embedding_length": 64}))
        with pytest.raises(GgufError, match="holds no weights"):
            await subject_of(mine, str(vocabulary))

    async def test_a_projector_alone_is_told_as_one(self, mine: Library, tmp_path: Path) -> None:
        shape = Vision("mlp", image=64, patch=16, embd=64, ff=128, heads=2, layers=2, out=576)
        eyes = write_clip(tmp_path / "mmproj-F16.gguf", shape)
        with pytest.raises(GgufError, match="it is a projector"):
            await answer(mine, {"model": str(eyes), "gpu": ["8GiB"]})


class TestHere:
    @pytest.fixture
    async def taken(self, mine: Library, smollm2_path: Path) -> Library:
        await mine.store.adopt(mine.resolve(SMOL), [smollm2_path], "copy")
        return mine

    async def test_it_is_proven_and_read_from_the_disk_once(
        self, taken: Library, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        read = list[Path]()

        def counted(path: Path) -> object:
            read.append(path)
            return read_slim(path)

        monkeypatch.setattr(headers, "read_slim", counted)
        first = await subject_of(taken, SMOL)
        assert first.here
        assert first.key == first.sha256 == taken.resolve(SMOL).variant.main.sha256
        assert await subject_of(taken, SMOL) == first
        assert len(read) == 1

    async def test_what_a_server_said_of_it_before_does_not_count(
        self, taken: Library, paths: Paths, tmp_path: Path
    ) -> None:
        (tmp_path / "lie.gguf").write_bytes(Q4)
        pin = taken.resolve(SMOL).variant.main.sha256
        HeaderCache(paths).put(pin, read_slim(tmp_path / "lie.gguf"), proven=False)
        assert (await subject_of(taken, SMOL)).header.arch == "llama"
        assert len((await subject_of(taken, SMOL)).header.tensors) == 272

    async def test_a_file_that_changed_since_is_not_kept(
        self, taken: Library, paths: Paths, subject_now: Callable[[Library], Subject]
    ) -> None:
        stored = taken.store.list()[0]
        with stored.main.open("r+b") as file:
            file.seek(90_000_000)
            file.write(b"damage")
        assert len(subject_now(taken).header.tensors) == 272
        assert files_of(paths) == []

    @pytest.fixture
    def subject_now(self) -> Callable[[Library], Subject]:
        """As a list looks: without a proof."""
        return lambda found: headers.of_stored(found, found.store.list()[0], None)


class TestTheCache:
    def test_the_oldest_make_room(
        self, paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(header_cache, "MOST_FILES", 3)
        (tmp_path / "m.gguf").write_bytes(Q4)
        cache, slim = HeaderCache(paths), read_slim(tmp_path / "m.gguf")
        names = [f"{n:064x}" for n in range(5)]
        for age, name in enumerate(names[:3]):
            cache.put(name, slim, proven=True)
            os.utime(cache.folder / f"{name}.gguf-header", (1_000 + age, 1_000 + age))
        assert cache.get(names[0], proven=True) is not None  # used, so the youngest now
        for name in names[3:]:
            cache.put(name, slim, proven=True)
        assert [cache.get(name, proven=True) is not None for name in names] == [
            True,
            False,
            False,
            True,
            True,
        ]

    def test_no_more_bytes_than_allowed(
        self, paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "m.gguf").write_bytes(Q4)
        cache, slim = HeaderCache(paths), read_slim(tmp_path / "m.gguf")
        monkeypatch.setattr(header_cache, "MOST_BYTES", 2 * len(slim.prefix) + 100)
        for n in range(5):
            cache.put(f"{n:064x}", slim, proven=True)
        assert len(files_of(paths)) == 2

    @pytest.mark.parametrize("name", ["", "../../etc/passwd", "A" * 64, "0" * 63])
    def test_only_a_hash_is_a_name(self, name: str, paths: Paths, tmp_path: Path) -> None:
        (tmp_path / "m.gguf").write_bytes(Q4)
        cache = HeaderCache(paths)
        cache.put(name, read_slim(tmp_path / "m.gguf"), proven=True)
        assert cache.get(name, proven=True) is None
        assert files_of(paths) == []

    def test_a_cache_that_cannot_be_written_is_none(self, paths: Paths, tmp_path: Path) -> None:
        (paths.cache / "headers").write_text("in the way")
        (tmp_path / "m.gguf").write_bytes(Q4)
        cache = HeaderCache(paths)
        cache.put("0" * 64, read_slim(tmp_path / "m.gguf"), proven=True)
        assert cache.get("0" * 64, proven=True) is None


def _grown(source: Path | bytes, size: int) -> bytes:
    """A part with zeros in the place of its tensors."""
    assert isinstance(source, bytes)
    return source + bytes(size - len(source))
