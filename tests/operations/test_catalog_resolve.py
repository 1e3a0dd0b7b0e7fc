"""Quants that no catalog lists: looked up on the Hub, pinned at their first use, and kept."""

from __future__ import annotations

import asyncio
import tomllib

import pytest

from appliance.catalog import HfSource
from appliance.errors import (
    CatalogError,
    Gated,
    HubError,
    HubOffline,
    LicenseNotAccepted,
    NotVerified,
    UnknownModel,
)
from appliance.operations import catalog
from appliance.operations.models import Library
from appliance.paths import Paths
from tests.hub import server
from tests.hub.server import Hub, Repository
from tests.operations.hubhouse import body, entry, library, sha256

Env = dict[str, str]
REPO = "owner/tiny-GGUF"
Q4, Q8, EYES = body(4), body(8, file_type=7), body(1, arch="clip")


@pytest.fixture
def repo(hub: Hub, paths: Paths) -> Repository:
    """A repository of which the user's catalog lists the Q4_K_M of its first commit."""
    made = hub.add(REPO)
    commit = made.commit({"tiny-Q4_K_M.gguf": Q4, "tiny-Q8_0.gguf": Q8, "README.md": b"x"})
    paths.user_catalog.write_text(entry("tiny", REPO, commit, "tiny-Q4_K_M.gguf", Q4))
    return made


@pytest.fixture
def mine(paths: Paths, repo: Repository) -> Library:
    return library(paths)


async def test_what_is_listed_asks_nobody(mine: Library, hub: Hub, env: Env) -> None:
    assert (await catalog.resolve(mine, "tiny", env=env)).ref == "tiny:Q4_K_M"
    assert (await catalog.resolve(mine, "tiny:q4_k_m", env=env)).variant.pin == "user"
    assert hub.requests == []


async def test_a_quant_of_the_repository_is_pinned_as_the_hub_states_it(
    mine: Library, repo: Repository, env: Env, paths: Paths
) -> None:
    ref = await catalog.resolve(mine, "tiny:q8_0", env=env)
    assert (ref.ref, ref.variant.pin) == ("tiny:Q8_0", "hub")
    assert isinstance(ref.variant.source, HfSource)
    assert ref.variant.source.revision == repo.branches["main"]
    assert (ref.variant.main.size, ref.variant.main.sha256) == (len(Q8), sha256(Q8))
    written = tomllib.loads(paths.pins.read_text())["models"]["tiny"]
    assert list(written) == ["variants"]
    assert [row["pin"] for row in mine.rows() if row["ref"] == "tiny:Q8_0"] == ["hub"]


async def test_a_pin_of_a_mirror_says_so(mine: Library, hub: Hub, env: Env, paths: Paths) -> None:
    host = hub.url.removeprefix("http://")
    assert (await catalog.resolve(mine, "tiny:q8_0", env=env)).variant.pin_host == host
    assert tomllib.loads(paths.pins.read_text())["models"]["tiny"]["variants"][0]["pin_host"] == host
    assert [row["pin_host"] for row in mine.rows() if row["id"] == "tiny"] == [None, host]
    shown = await catalog.show(mine, "tiny", env=env)
    assert [variant["pin_host"] for variant in shown["variants"]] == [None, host]

    added = await catalog.add(mine, f"hf:{REPO}/tiny-Q8_0.gguf", model_id="other", env=env)
    assert added["stated_by"].startswith(f"{host} (HF_ENDPOINT), at commit ")
    assert mine.catalog.models["other"].variants[0].pin_host == host
    with pytest.raises(UnknownModel) as caught:
        await catalog.resolve(mine, "tiny:Q2_K", env=env)
    assert (caught.value.cause or "").startswith(f"{host} (HF_ENDPOINT) has ")


async def test_a_repository_that_changes_later_changes_no_pin(
    mine: Library, repo: Repository, hub: Hub, env: Env, paths: Paths
) -> None:
    first = await catalog.resolve(mine, "tiny:Q8_0", env=env)
    repo.commit({"tiny-Q8_0.gguf": body(9)})
    asked = len(hub.requests)
    assert await catalog.resolve(mine, "tiny:Q8_0", env=env) == first
    assert await catalog.resolve(library(paths), "tiny:Q8_0", env=env) == first
    assert len(hub.requests) == asked


async def test_two_at_once_agree_on_one_pin(mine: Library, paths: Paths, env: Env) -> None:
    refs = await asyncio.gather(*(catalog.resolve(mine, "tiny:Q8_0", env=env) for _ in range(4)))
    assert len({ref.variant.main.sha256 for ref in refs}) == 1
    assert len(tomllib.loads(paths.pins.read_text())["models"]["tiny"]["variants"]) == 1


async def test_all_parts_of_a_split_set_are_pinned(
    mine: Library, repo: Repository, hub: Hub, env: Env
) -> None:
    parts = {f"F16/tiny-F16-0000{n}-of-00002.gguf": body(n) for n in (1, 2)}
    repo.commit(parts)
    variant = (await catalog.resolve(mine, "tiny:F16", env=env)).variant
    assert [(f.name, f.part, f.sha256) for f in variant.files] == [
        (name, number, sha256(raw)) for number, (name, raw) in enumerate(parts.items(), 1)
    ]
    repo.commit({"tiny-Q5_0-00001-of-00002.gguf": Q4})
    with pytest.raises(NotVerified, match="one of 2 parts"):
        await catalog.resolve(mine, "tiny:Q5_0", env=env)


async def test_a_model_that_sees_keeps_its_projector(hub: Hub, env: Env, paths: Paths) -> None:
    made = hub.add(REPO)
    files = {"tiny-Q4_K_M.gguf": Q4, "tiny-Q8_0.gguf": Q8, "mmproj-BF16.gguf": body(2), "mmproj-x.gguf": EYES}
    commit = made.commit(files)
    text = entry("tiny", REPO, commit, "tiny-Q4_K_M.gguf", Q4).replace('["chat"]', '["vision", "chat"]')
    eyes = f'{{ name = "mmproj-x.gguf", role = "mmproj", size = {len(EYES)}, sha256 = "{sha256(EYES)}" }}'
    paths.user_catalog.write_text(text.replace('" }]', f'" }}, {eyes}]'))
    variant = (await catalog.resolve(library(paths), "tiny:Q8_0", env=env)).variant
    assert [(f.role, f.name) for f in variant.files] == [
        ("model", "tiny-Q8_0.gguf"),
        ("mmproj", "mmproj-x.gguf"),
    ]


async def test_of_two_files_for_one_quant_the_one_named_alike_is_meant(
    mine: Library, repo: Repository, env: Env
) -> None:
    repo.commit({"tiny-Q8_0.gguf": Q8, "tiny-draft-Q8_0.gguf": Q4})
    assert (await catalog.resolve(mine, "tiny:Q8_0", env=env)).variant.main.name == "tiny-Q8_0.gguf"
    repo.commit({"a-Q6_K.gguf": Q8, "b-Q6_K.gguf": Q4})
    with pytest.raises(UnknownModel, match="several files") as caught:
        await catalog.resolve(mine, "tiny:Q6_K", env=env)
    assert caught.value.cause == "a-Q6_K.gguf, b-Q6_K.gguf"


async def test_a_quant_that_is_nowhere_lists_what_is(mine: Library, env: Env, paths: Paths) -> None:
    with pytest.raises(UnknownModel) as caught:
        await catalog.resolve(mine, "tiny:Q1_0", env=env)
    assert caught.value.cause is not None
    assert set(caught.value.cause.rpartition(" has ")[2].rstrip(".").split(", ")) == {"Q4_K_M", "Q8_0"}
    assert not paths.pins.exists()


async def test_no_hash_no_pin(mine: Library, hub: Hub, env: Env, paths: Paths) -> None:
    hub.hashless = True
    with pytest.raises(NotVerified, match="states no SHA-256"):
        await catalog.resolve(mine, "tiny:Q8_0", env=env)
    assert not paths.pins.exists()


async def test_names_that_have_nothing_to_do_with_the_hub_ask_nobody(
    mine: Library, hub: Hub, env: Env
) -> None:
    for name in ("nosuch", "nosuch:Q8_0", "smollm2-135m-instruct:Q8_0"):
        with pytest.raises(UnknownModel):
            await catalog.resolve(mine, name, env=env)
    assert hub.requests == []


async def test_a_hub_that_fails_is_told_and_stops_nothing_else(mine: Library, hub: Hub, env: Env) -> None:
    hub.acts = [server.says(503), server.says(403, X_Error_Code="GatedRepo")]
    with pytest.raises(HubError, match=r"tiny:Q8_0 is not in the catalog, so the Hub was asked") as caught:
        await catalog.resolve(mine, "tiny:Q8_0", env=env)
    assert "tiny:Q4_K_M" in (caught.value.hint or "")
    with pytest.raises(Gated):
        await catalog.resolve(mine, "tiny:Q8_0", env=env)
    with pytest.raises(HubOffline):
        await catalog.resolve(mine, "tiny:Q8_0", env=env | {"HF_HUB_OFFLINE": "1"})
    assert (await catalog.resolve(mine, "tiny", env=env)).ref == "tiny:Q4_K_M"
    assert len(mine.rows()) > 60


async def test_a_file_name_that_no_disk_could_hold_is_refused(
    mine: Library, repo: Repository, env: Env, paths: Paths
) -> None:
    repo.commit({"tiny:evil-Q6_K.gguf": Q8})
    with pytest.raises(Exception, match="can't become an entry"):
        await catalog.resolve(mine, "tiny:Q6_K", env=env)
    assert not paths.pins.exists()


class TestTheLicence:
    def limited(self, paths: Paths, note: str = "non-commercial: research only") -> Library:
        text = entry("lim", REPO, "ab" * 20, "a.gguf", Q4).replace(
            'license = "apache-2.0"', f'license = "x-research"\nlicense_note = "{note}"'
        )
        paths.user_catalog.write_text(text)
        return library(paths)

    def test_a_free_one_passes(self, mine: Library) -> None:
        catalog.require_license(mine, mine.resolve("tiny"))
        assert not mine.paths.licenses.exists()

    def test_a_limited_one_is_refused_until_it_is_accepted_once(self, paths: Paths) -> None:
        mine = self.limited(paths)
        ref = mine.resolve("lim")
        with pytest.raises(LicenseNotAccepted) as caught:
            catalog.require_license(mine, ref)
        assert "x-research" in caught.value.message
        assert caught.value.cause == "non-commercial: research only"
        assert "models pull lim:Q4_K_M --accept-license" in (caught.value.hint or "")
        assert (caught.value.exit_code, caught.value.status) == (1, 403)

        catalog.require_license(mine, ref, accepted=True)
        catalog.require_license(library(paths), ref)

    def test_other_words_ask_again(self, paths: Paths) -> None:
        mine = self.limited(paths)
        catalog.require_license(mine, mine.resolve("lim"), accepted=True)
        changed = self.limited(paths, "non-commercial: and not on Sundays")
        with pytest.raises(LicenseNotAccepted):
            catalog.require_license(changed, changed.resolve("lim"))

    def test_a_broken_note_of_acceptances_counts_as_none(self, paths: Paths) -> None:
        mine = self.limited(paths)
        for broken in ("{", "[]", '{"accepted": 3}', '{"accepted": {"lim": 1}}'):
            paths.licenses.write_text(broken)
            with pytest.raises(LicenseNotAccepted):
                catalog.require_license(mine, mine.resolve("lim"))
        catalog.require_license(mine, mine.resolve("lim"), accepted=True)
        catalog.require_license(mine, mine.resolve("lim"))


async def test_a_pins_file_that_can_not_be_read_is_named(mine: Library, env: Env, paths: Paths) -> None:
    paths.pins.mkdir()
    with pytest.raises(CatalogError, match=r"pins\.toml can't be read"):
        await catalog.resolve(mine, "tiny:Q8_0", env=env)
    assert (await catalog.resolve(mine, "tiny", env=env)).ref == "tiny:Q4_K_M"
