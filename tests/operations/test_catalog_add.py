"""`models add`: from the Hub, an address or a path to an entry of the user's own."""

from __future__ import annotations

import asyncio
import base64
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from appliance import catalog as catalogs
from appliance.catalog import FileSource, HfSource, UrlSource
from appliance.errors import (
    ApplianceError,
    CatalogError,
    DownloadError,
    Gated,
    GgufError,
    ModelMissing,
    NotOnHub,
    NotVerified,
    UsageError,
)
from appliance.operations import catalog
from appliance.operations.models import Library
from appliance.paths import Paths
from tests.hub.server import Hub
from tests.operations.hubhouse import body, entry, library, sha256
from tests.store.helpers import Seen

Env = dict[str, str]
REPO = "owner/Tiny-1B-GGUF"
Q4, Q8 = body(4), body(8, file_type=7)


@pytest.fixture
def mine(hub: Hub, paths: Paths) -> Library:
    hub.add(REPO, license="llama3.2").commit({"Tiny-1B-Q4_K_M.gguf": Q4, "sub/Tiny-1B-Q8_0.gguf": Q8})
    return library(paths)


class TestFromTheHub:
    async def test_commit_size_and_hash_are_the_hubs(self, mine: Library, hub: Hub, env: Env) -> None:
        done = await catalog.add(mine, f"hf:{REPO}/Tiny-1B-Q4_K_M.gguf", env=env)
        assert (done["ref"], done["pin"], done["added"]) == ("tiny-1b:Q4_K_M", "hub", True)
        assert done["file"] == str(mine.paths.user_catalog)
        model = mine.catalog.models["tiny-1b"]
        assert (model.name, model.family, model.license) == ("Tiny-1B", "tiny-1b", "llama3.2")
        assert (model.context, model.params, model.use) == (2048, 256.0, ("chat",))
        variant = model.variants[0]
        assert variant.source == HfSource(
            kind="hf", repo=REPO, revision=hub.repositories[REPO].branches["main"]
        )
        assert (variant.main.size, variant.main.sha256) == (len(Q4), sha256(Q4))

    async def test_only_the_beginning_is_fetched(self, mine: Library, hub: Hub, env: Env) -> None:
        hub.add("big/one-GGUF").commit({"one-Q8_0.gguf": body(1, n_bytes=5 << 20)})
        await catalog.add(mine, "hf:big/one-GGUF/one-Q8_0.gguf", env=env)
        ranges = [r.headers["Range"] for r in hub.requests if "/resolve/" in r.path]
        assert ranges == ["bytes=0-0", "bytes=0-262143"]

    async def test_a_revision_an_address_and_a_folder(self, mine: Library, hub: Hub, env: Env) -> None:
        old = hub.repositories[REPO].branches["main"]
        hub.repositories[REPO].commit({"new-Q4_0.gguf": Q4})
        done = await catalog.add(mine, f"hf:{REPO}@{old}/sub/Tiny-1B-Q8_0.gguf", env=env)
        assert (done["ref"], done["source"]["revision"]) == ("tiny-1b:Q8_0", old)
        done = await catalog.add(mine, f"{hub.url}/{REPO}/resolve/main/new-Q4_0.gguf?download=true", env=env)
        assert (done["source"]["kind"], done["pin"]) == ("hf", "hub")
        with pytest.raises(NotOnHub, match="no revision"):
            await catalog.add(mine, f"hf:{REPO}@nope/a.gguf", env=env)

    async def test_a_split_set_comes_whole_from_any_part(self, mine: Library, hub: Hub, env: Env) -> None:
        parts = {f"big-Q8_0-0000{n}-of-00003.gguf": body(n) for n in (1, 2, 3)}
        hub.add("o/big-GGUF").commit({**parts, "mmproj-F16.gguf": body(9)})
        done = await catalog.add(mine, "hf:o/big-GGUF/big-Q8_0-00002-of-00003.gguf", env=env)
        assert [(f["part"], f["sha256"]) for f in done["files"]] == [
            *((n, sha256(raw)) for n, raw in enumerate(parts.values(), 1)),
            (None, sha256(body(9))),
        ]

    async def test_the_projector_of_a_repository_with_one_model_comes_along(
        self, mine: Library, hub: Hub, env: Env
    ) -> None:
        eyes = {"mmproj-BF16.gguf": body(8), "mmproj-F16.gguf": body(9)}
        hub.add("o/seer-GGUF").commit({"seer-Q4_0.gguf": Q4, "seer-Q8_0.gguf": Q8, **eyes})
        done = await catalog.add(mine, "hf:o/seer-GGUF/seer-Q4_0.gguf", env=env)
        assert [(f["role"], f["name"]) for f in done["files"]] == [
            ("model", "seer-Q4_0.gguf"), ("mmproj", "mmproj-F16.gguf"),
        ]  # fmt: skip
        assert "vision" in mine.catalog.resolve("seer").model.use

    async def test_of_several_models_nobody_guesses_which_the_projector_is_for(
        self, mine: Library, hub: Hub, env: Env
    ) -> None:
        hub.add("o/zoo-GGUF").commit({"a-Q4_0.gguf": Q4, "b-Q8_0.gguf": Q8, "mmproj-F16.gguf": body(9)})
        done = await catalog.add(mine, "hf:o/zoo-GGUF/a-Q4_0.gguf", env=env)
        assert [f["role"] for f in done["files"]] == ["model"]
        assert any("mmproj-F16.gguf" in hint and sha256(body(9)) in hint for hint in done["hints"])

    async def test_the_projector_beside_a_file_comes_along(
        self, mine: Library, env: Env, tmp_path: Path
    ) -> None:
        (tmp_path / "seer-Q4_0.gguf").write_bytes(Q4)
        (tmp_path / "mmproj-seer.gguf").write_bytes(body(9))
        done = await catalog.add(mine, str(tmp_path / "seer-Q4_0.gguf"), env=env)
        assert [(f["role"], f["sha256"]) for f in done["files"]] == [
            ("model", sha256(Q4)), ("mmproj", sha256(body(9))),
        ]  # fmt: skip
        assert done["source"] == {"kind": "file", "path": str(tmp_path)}
        (tmp_path / "other-Q4_0.gguf").write_bytes(Q8)
        done = await catalog.add(mine, str(tmp_path / "other-Q4_0.gguf"), env=env)
        assert [f["role"] for f in done["files"]] == ["model"]

    async def test_a_repository_of_the_catalog_gives_its_id_and_a_pin(
        self, hub: Hub, env: Env, paths: Paths
    ) -> None:
        listed = catalogs.load().models["qwen3-8b"].variants[0].source
        assert isinstance(listed, HfSource)
        hub.add(listed.repo).commit({"Qwen3-8B-Q2_K.gguf": Q8})
        mine = library(paths)
        done = await catalog.add(mine, f"hf:{listed.repo}/Qwen3-8B-Q2_K.gguf", env=env)
        assert (done["ref"], done["file"]) == ("qwen3-8b:Q2_K", str(paths.pins))
        assert not paths.user_catalog.exists()
        assert mine.catalog.resolve("qwen3-8b:Q2_K").model.license == "apache-2.0"
        assert mine.catalog.resolve("qwen3-8b").quant == "Q4_K_M"

    async def test_a_stated_hash_must_agree(self, mine: Library, env: Env) -> None:
        source = f"hf:{REPO}/Tiny-1B-Q4_K_M.gguf"
        with pytest.raises(NotVerified, match="nothing was added") as caught:
            await catalog.add(mine, source, sha256="00" * 32, env=env)
        assert sha256(Q4) in (caught.value.cause or "")
        with pytest.raises(NotVerified, match="size"):
            await catalog.add(mine, source, size=7, env=env)
        assert not mine.paths.user_catalog.exists()
        await catalog.add(mine, source, sha256="sha256:" + sha256(Q4).upper(), size=len(Q4), env=env)

    async def test_a_file_of_another_size_than_described_is_refused(
        self, mine: Library, hub: Hub, env: Env
    ) -> None:
        repo = hub.repositories[REPO]
        described = repo.commits[repo.branches["main"]]
        hub.acts = [hub.describes(REPO, {**described, "Tiny-1B-Q4_K_M.gguf": Q4 + b"more"})]
        with pytest.raises(NotVerified, match="another size"):
            await catalog.add(mine, f"hf:{REPO}/Tiny-1B-Q4_K_M.gguf", env=env)

    async def test_without_a_hash_of_the_hub_the_users_counts(
        self, mine: Library, hub: Hub, env: Env
    ) -> None:
        hub.hashless = True
        source = f"hf:{REPO}/Tiny-1B-Q4_K_M.gguf"
        with pytest.raises(NotVerified, match="states no SHA-256"):
            await catalog.add(mine, source, env=env)
        assert (await catalog.add(mine, source, sha256=sha256(Q4), env=env))["pin"] == "user"

    async def test_what_is_no_model_is_refused(self, mine: Library, hub: Hub, env: Env) -> None:
        hub.add("o/odd-GGUF").commit(
            {"mmproj-F16.gguf": Q4, "page-Q4_0.gguf": b"<html>" * 100, "sure-Q4_0.gguf": Q4}
        )
        for source, kind in (
            ("hf:o/odd-GGUF/mmproj-F16.gguf", UsageError),
            ("hf:o/odd-GGUF/README.md", UsageError),
            ("hf:o/odd-GGUF", UsageError),
            ("hf:o/odd-GGUF/Sure-Q4_0.gguf", NotOnHub),
            ("hf:o/odd-GGUF/page-Q4_0.gguf", GgufError),
            ("ftp://host/a.gguf", UsageError),
            ("", UsageError),
        ):
            with pytest.raises(kind):
                await catalog.add(mine, source, env=env)
        assert not mine.paths.user_catalog.exists()

    async def test_a_gated_one_names_the_page_and_lets_members_in(
        self, mine: Library, hub: Hub, env: Env
    ) -> None:
        hub.add("o/shut-GGUF", gated="manual", members=frozenset({"hf_ann"})).commit({"s-Q4_0.gguf": Q4})
        with pytest.raises(Gated) as caught:
            await catalog.add(mine, "hf:o/shut-GGUF/s-Q4_0.gguf", env=env)
        assert f"{hub.url}/o/shut-GGUF" in (caught.value.hint or "")
        done = await catalog.add(mine, "hf:o/shut-GGUF/s-Q4_0.gguf", env=env | {"HF_TOKEN": "hf_ann"})
        assert any("gated" in hint for hint in done["hints"])
        assert "hf_ann" not in mine.paths.user_catalog.read_text() + str(done)


class TestTwice:
    async def test_the_same_again_changes_nothing(self, mine: Library, env: Env) -> None:
        source = f"hf:{REPO}/Tiny-1B-Q4_K_M.gguf"
        await catalog.add(mine, source, env=env)
        before = mine.paths.user_catalog.read_bytes()
        again = await catalog.add(mine, source, env=env)
        assert (again["added"], again["file"]) == (False, None)
        assert mine.paths.user_catalog.read_bytes() == before

    async def test_another_pin_under_the_same_name_is_refused(
        self, mine: Library, hub: Hub, env: Env
    ) -> None:
        source = f"hf:{REPO}/Tiny-1B-Q4_K_M.gguf"
        await catalog.add(mine, source, env=env)
        hub.repositories[REPO].commit({"Tiny-1B-Q4_K_M.gguf": body(5)})
        with pytest.raises(UsageError, match="already, with another pin") as caught:
            await catalog.add(mine, source, env=env)
        assert "--id" in (caught.value.hint or "")
        done = await catalog.add(mine, source, model_id="tiny-new", env=env)
        assert done["ref"] == "tiny-new:Q4_K_M"

    async def test_a_further_quant_joins_the_users_entry(self, mine: Library, env: Env) -> None:
        await catalog.add(mine, f"hf:{REPO}/Tiny-1B-Q4_K_M.gguf", env=env)
        await catalog.add(mine, f"hf:{REPO}/sub/Tiny-1B-Q8_0.gguf", env=env)
        assert [v.quant for v in mine.catalog.models["tiny-1b"].variants] == ["Q4_K_M", "Q8_0"]
        assert not mine.paths.pins.exists()

    async def test_many_at_once_all_arrive(self, mine: Library, hub: Hub, env: Env) -> None:
        for n in range(6):
            hub.add(f"o/m{n}-GGUF").commit({f"m{n}-Q4_0.gguf": body(n)})
        await asyncio.gather(
            *(catalog.add(mine, f"hf:o/m{n}-GGUF/m{n}-Q4_0.gguf", env=env) for n in range(6))
        )
        assert {f"m{n}" for n in range(6)} <= set(mine.catalog.models)


class TestTheUsersFile:
    MINE = """# my models, do not touch
schema = 1   # the form

[models.mine]       # first
family = "mine"
name = "Mine"
use = ["chat"]      # for now
# the good one
[[models.mine.variants]]
quant = "Q4_0"
source = { kind = "file", path = "~/a.gguf" }
files = [{ name = "a.gguf", size = 5, sha256 = "%s" }]  # from Ann

# the last word
""" % ("ab" * 32)

    async def test_comments_order_mode_and_line_ends_stay(self, mine: Library, env: Env) -> None:
        file = mine.paths.user_catalog
        file.write_bytes(self.MINE.replace("\n", "\r\n").encode())
        file.chmod(0o640)
        await catalog.add(mine, f"hf:{REPO}/Tiny-1B-Q4_K_M.gguf", env=env)
        await catalog.add(mine, f"hf:{REPO}/sub/Tiny-1B-Q8_0.gguf", model_id="mine", env=env)
        text = file.read_bytes().decode()
        for comment in (
            "do not touch",
            "# the form",
            "# first",
            "# for now",
            "# the good one",
            "# from Ann",
            "last word",
        ):
            assert comment in text
        assert text.startswith("# my models, do not touch\r\n")
        assert file.stat().st_mode & 0o777 == 0o640
        assert [v.quant for v in mine.catalog.models["mine"].variants] == ["Q4_0", "Q8_0"]
        assert mine.catalog.models["tiny-1b"].variants[0].pin == "hub"

    async def test_variants_in_one_line_get_another(self, mine: Library, env: Env) -> None:
        inline = self.MINE[: self.MINE.index("# the good one")] + (
            'variants = [{ quant = "Q4_0", source = { kind = "file", path = "~/a.gguf" }, '
            'files = [{ name = "a.gguf", size = 5, sha256 = "%s" }] }]\n' % ("ab" * 32)
        )
        mine.paths.user_catalog.write_text(inline)
        await catalog.add(mine, f"hf:{REPO}/sub/Tiny-1B-Q8_0.gguf", model_id="mine", env=env)
        assert [v.quant for v in mine.catalog.models["mine"].variants] == ["Q4_0", "Q8_0"]

    async def test_a_link_stays_a_link(self, mine: Library, env: Env, tmp_path: Path) -> None:
        real = tmp_path / "dotfiles.toml"
        real.write_text(self.MINE)
        mine.paths.user_catalog.symlink_to(real)
        await catalog.add(mine, f"hf:{REPO}/Tiny-1B-Q4_K_M.gguf", env=env)
        assert mine.paths.user_catalog.is_symlink()
        assert "tiny-1b" in real.read_text()

    async def test_an_empty_one_is_filled_and_a_broken_one_is_left_alone(
        self, mine: Library, env: Env
    ) -> None:
        file = mine.paths.user_catalog
        file.write_text("schema = 1\n[models.x\n")
        with pytest.raises(CatalogError, match="not valid TOML"):
            await catalog.add(mine, f"hf:{REPO}/Tiny-1B-Q4_K_M.gguf", env=env)
        assert file.read_text() == "schema = 1\n[models.x\n"
        file.write_text("")
        await catalog.add(mine, f"hf:{REPO}/Tiny-1B-Q4_K_M.gguf", env=env)
        assert tomllib.loads(file.read_text())["schema"] == 1

    async def test_names_that_are_none(self, mine: Library, env: Env) -> None:
        source = f"hf:{REPO}/Tiny-1B-Q4_K_M.gguf"
        with pytest.raises(UsageError, match="can't be an id"):
            await catalog.add(mine, source, model_id="My Model", env=env)
        with pytest.raises(UsageError, match="can't name a quant"):
            await catalog.add(mine, source, quant="a/b", env=env)
        with pytest.raises(UsageError, match="64 hex digits"):
            await catalog.add(mine, source, sha256="abc", env=env)


class TestFromAnAddress:
    @pytest.fixture
    async def site(self) -> AsyncIterator[str]:
        """A plain file server: ranges at /r/, none at /whole/, hash headers at /digest/ and /sum/."""

        async def serve(request: web.Request) -> web.StreamResponse:
            kind, raw = request.match_info["kind"], Q4
            headers = {}
            if kind == "digest":
                digest = base64.b64encode(bytes.fromhex(sha256(raw))).decode()
                headers["Repr-Digest"] = f"sha-256=:{digest}:"
            if kind == "sum":
                headers["X-Checksum-Sha256"] = sha256(raw)
            if kind == "gone":
                raise web.HTTPNotFound
            if kind == "html":
                return web.Response(text="<html>login</html>", content_type="text/html")
            if kind == "whole" or "Range" not in request.headers:
                return web.Response(body=raw, headers=headers)
            headers["Content-Range"] = f"bytes 0-{len(raw) - 1}/{len(raw)}"
            return web.Response(status=206, body=raw, headers=headers)

        app = web.Application()
        app.router.add_get("/{kind}/{name}", serve)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        await runner.cleanup()

    @pytest.mark.parametrize("kind", ["r", "whole"])
    async def test_the_users_hash_is_the_pin_and_the_server_tells_the_size(
        self, mine: Library, env: Env, site: str, kind: str
    ) -> None:
        url = f"{site}/{kind}/some%20model-Q4_K_M.gguf"
        done = await catalog.add(mine, url, sha256=sha256(Q4), env=env)
        assert (done["ref"], done["pin"], done["size"]) == ("some-model:Q4_K_M", "user", len(Q4))
        assert done["stated_by"] == "you"
        variant = mine.catalog.resolve("some-model").variant
        assert variant.source == UrlSource(kind="url", url=url)
        assert variant.main.name == "some model-Q4_K_M.gguf"

    async def test_no_hash_nothing_added(self, mine: Library, env: Env, site: str) -> None:
        with pytest.raises(NotVerified, match="states no SHA-256") as caught:
            await catalog.add(mine, f"{site}/r/m-Q4_0.gguf", env=env)
        assert "--sha256" in (caught.value.hint or "")
        assert not mine.paths.user_catalog.exists()

    @pytest.mark.parametrize(("kind", "by"), [("digest", "Repr-Digest"), ("sum", "X-Checksum-Sha256")])
    async def test_a_server_that_states_one_is_named(
        self, mine: Library, env: Env, site: str, kind: str, by: str
    ) -> None:
        done = await catalog.add(mine, f"{site}/{kind}/m-Q4_0.gguf", env=env)
        assert done["files"][0]["sha256"] == sha256(Q4)
        assert done["stated_by"] == f"127.0.0.1 ({by})"

    async def test_a_hash_that_the_server_contradicts_is_refused(
        self, mine: Library, env: Env, site: str
    ) -> None:
        with pytest.raises(NotVerified, match="another one"):
            await catalog.add(mine, f"{site}/sum/m-Q4_0.gguf", sha256="00" * 32, env=env)

    async def test_secrets_would_be_stored_so_they_are_refused(
        self, mine: Library, env: Env, site: str
    ) -> None:
        host = site.removeprefix("http://")
        for url in (
            f"http://me:hunter2@{host}/r/m-Q4_0.gguf",
            f"{site}/r/m-Q4_0.gguf?X-Amz-Signature=hunter2",
            f"{site}/r/m-Q4_0.gguf?sv=1&sig=hunter2",
            f"{site}/r/m-Q4_0.gguf?access_token=hunter2",
            f"{site}/r/m-Q4_0.gguf?Expires=1&Key-Pair-Id=hunter2",
        ):
            with pytest.raises(UsageError) as caught:
                await catalog.add(mine, url, sha256=sha256(Q4), env=env)
            assert "hunter2" not in str(caught.value)
        done = await catalog.add(mine, f"{site}/r/m-Q4_0.gguf?version=2", sha256=sha256(Q4), env=env)
        assert done["source"]["url"].endswith("?version=2")

    async def test_what_can_not_be_read_is_told(self, mine: Library, env: Env, site: str) -> None:
        for path, kind, said in (
            ("gone/m-Q4_0.gguf", ApplianceError, "404"),
            ("html/m-Q4_0.gguf", DownloadError, "web page"),
            ("r/m-Q4_0-00001-of-00002.gguf", UsageError, "split set"),
        ):
            with pytest.raises(kind, match=said):
                await catalog.add(mine, f"{site}/{path}", sha256=sha256(Q4), env=env)
        with pytest.raises(ApplianceError, match="can't be read"):
            await catalog.add(mine, "http://nowhere.invalid/m-Q4_0.gguf", sha256=sha256(Q4), env=env)


class TestFromAPath:
    async def test_it_is_hashed_here_and_stays_where_it_is(
        self, mine: Library, env: Env, tmp_path: Path
    ) -> None:
        file = tmp_path / "Own Model.gguf"
        file.write_bytes(Q8)
        seen = Seen()
        done = await catalog.add(mine, str(file), on_progress=seen, env=env)
        assert (done["ref"], done["pin"]) == ("own-model:Q8_0", "user")  # the quant is the header's
        variant = mine.catalog.resolve("own-model").variant
        assert variant.source == FileSource(kind="file", path=str(file))
        assert (variant.main.size, variant.main.sha256) == (len(Q8), sha256(Q8))
        assert seen.phases == ["verifying", "done"]
        assert mine.catalog.models["own-model"].license == "mit"
        assert mine.store.find("own-model:Q8_0") is None  # known, and not usable yet
        assert any("`models pull`" in hint and "`models import PATH`" in hint for hint in done["hints"])
        stored = await mine.store.pull(mine.resolve("own-model"))
        assert stored.main.read_bytes() == Q8

    async def test_a_split_set_is_taken_whole(self, mine: Library, env: Env, tmp_path: Path) -> None:
        for n in (1, 2):
            (tmp_path / f"m-Q4_0-0000{n}-of-00002.gguf").write_bytes(body(n))
        done = await catalog.add(mine, str(tmp_path / "m-Q4_0-00002-of-00002.gguf"), env=env)
        assert [(f["part"], f["sha256"]) for f in done["files"]] == [(n, sha256(body(n))) for n in (1, 2)]
        assert done["source"]["path"] == str(tmp_path)
        (tmp_path / "m-Q4_0-00002-of-00002.gguf").unlink()
        with pytest.raises(ModelMissing, match="not beside it"):
            await catalog.add(mine, str(tmp_path / "m-Q4_0-00001-of-00002.gguf"), env=env)

    async def test_a_stated_hash_is_checked(self, mine: Library, env: Env, tmp_path: Path) -> None:
        file = tmp_path / "m-Q4_0.gguf"
        file.write_bytes(Q4)
        with pytest.raises(NotVerified, match="not the file that you stated"):
            await catalog.add(mine, str(file), sha256="00" * 32, env=env)
        assert (await catalog.add(mine, str(file), sha256=sha256(Q4), env=env))["added"]

    async def test_what_is_no_model_file(self, mine: Library, env: Env, tmp_path: Path) -> None:
        (tmp_path / "page.gguf").write_text("<html>")
        for path, kind in (("none.gguf", ModelMissing), ("", UsageError), ("page.gguf", GgufError)):
            with pytest.raises(kind):
                await catalog.add(mine, str(tmp_path / path), env=env)

    async def test_a_relative_path_is_stored_whole(
        self, mine: Library, env: Env, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "here-Q4_0.gguf").write_bytes(Q4)
        done = await catalog.add(mine, "here-Q4_0.gguf", env=env)
        assert done["source"]["path"] == str(tmp_path / "here-Q4_0.gguf")

    async def test_embedders_and_rerankers_are_told_by_their_header(
        self, mine: Library, env: Env, tmp_path: Path
    ) -> None:
        for name, raw, use in (
            ("vec-F16.gguf", body(1, arch="bert", pooling_type=1), "embedding"),
            ("rank-F16.gguf", body(2, arch="bert", pooling_type=4), "rerank"),
            ("talk-F16.gguf", body(3), "chat"),
        ):
            (tmp_path / name).write_bytes(raw)
            done = await catalog.add(mine, str(tmp_path / name), env=env)
            assert mine.catalog.models[done["id"]].use == (use,)


async def test_the_catalog_of_a_running_program_sees_it_at_once(
    mine: Library, env: Env, paths: Paths
) -> None:
    other = library(paths)
    await catalog.add(mine, f"hf:{REPO}/Tiny-1B-Q4_K_M.gguf", env=env)
    assert other.resolve("tiny-1b").variant.pin == "hub"
    paths.user_catalog.write_text(entry("x", REPO, "nope", "a.gguf", Q4))
    assert other.resolve("tiny-1b").ref == "tiny-1b:Q4_K_M"
    assert "revision" in (other.catalog_problem or "")
    with pytest.raises(CatalogError):
        library(paths)
