"""Searching and showing: over the catalog without a network, over the Hub when asked."""

from __future__ import annotations

import pytest

from appliance.errors import HubError, HubOffline, UnknownModel, UsageError
from appliance.operations import catalog
from appliance.operations.models import Library
from appliance.paths import Paths
from tests.hub import server
from tests.hub.server import Hub
from tests.operations.hubhouse import body, entry, library, sha256

Env = dict[str, str]
REPO = "owner/tiny-GGUF"
Q4, Q8 = body(4), body(8)


@pytest.fixture
def mine(hub: Hub, paths: Paths) -> Library:
    made = hub.add(REPO, downloads=1200, likes=5)
    commit = made.commit({"tiny-Q4_K_M.gguf": Q4, "tiny-Q8_0.gguf": Q8})
    paths.user_catalog.write_text(entry("tiny", REPO, commit, "tiny-Q4_K_M.gguf", Q4))
    hub.add("other/tiny-more-GGUF", downloads=9, gated="auto").commit({"x-Q4_0.gguf": Q4})
    return library(paths)


class TestSearch:
    async def test_all_words_must_occur_and_ids_come_first(self, mine: Library, hub: Hub) -> None:
        found = await catalog.search(mine, "qwen3-8b")
        assert found[0]["id"] == "qwen3-8b"
        found = await catalog.search(mine, "QWEN coder 3b")
        assert [row["id"] for row in found][:2] == [
            "qwen2.5-coder-3b-instruct",
            "qwen3-coder-30b-a3b-instruct",
        ]
        assert {use for row in await catalog.search(mine, "embedding") for use in row["use"]} >= {"embedding"}
        assert {tuple(row["use"]) for row in await catalog.search(mine, "rerank")} == {("rerank",)}
        assert [row["id"] for row in await catalog.search(mine, "qwen3 q8_0 0.6b chat")] == ["qwen3-0.6b"]
        assert await catalog.search(mine, "qwen3 nosuchword") == []
        assert hub.requests == []

    async def test_the_limit_holds_and_no_words_are_refused(self, mine: Library) -> None:
        assert len(await catalog.search(mine, "q", limit=3)) == 3
        with pytest.raises(UsageError):
            await catalog.search(mine, "  ")

    async def test_the_hub_adds_its_rows_and_marks_what_is_listed(self, mine: Library, env: Env) -> None:
        rows = await catalog.search_hub(mine, "Tiny", env=env)
        assert [(row["where"], row["repo"]) for row in rows] == [
            ("hub", REPO),
            ("hub", "other/tiny-more-GGUF"),
        ]
        assert (rows[0]["downloads"], rows[0]["likes"], rows[0]["gated"]) == (1200, 5, False)
        assert [row["listed_as"] for row in rows] == [["tiny"], []]
        assert rows[1]["gated"] is True

    async def test_a_hub_that_can_not_answer_says_so(self, mine: Library, hub: Hub, env: Env) -> None:
        hub.acts = [server.says(500)]
        with pytest.raises(HubError):
            await catalog.search_hub(mine, "tiny", env=env)
        with pytest.raises(HubOffline, match="HF_HUB_OFFLINE"):
            await catalog.search_hub(mine, "tiny", env=env | {"HF_HUB_OFFLINE": "1"})
        with pytest.raises(UsageError, match="Nothing to search"):
            await catalog.search_hub(mine, " ", env=env)


class TestShow:
    async def test_a_model_with_its_pins(self, mine: Library, hub: Hub) -> None:
        shown = await catalog.show(mine, "tiny")
        assert (shown["id"], shown["license"], shown["hub"], shown["accepted"]) == (
            "tiny",
            "apache-2.0",
            None,
            None,
        )
        (variant,) = shown["variants"]
        assert (variant["ref"], variant["pin"], variant["state"]) == ("tiny:Q4_K_M", "user", "absent")
        assert variant["files"][0]["sha256"] == sha256(Q4)
        assert hub.requests == []

    async def test_a_limited_one_says_whether_it_was_accepted(self, mine: Library) -> None:
        shown = await catalog.show(mine, "qwen2.5-coder-3b-instruct")
        assert (shown["restricted"], shown["accepted"]) == (True, False)
        assert "non-commercial" in shown["license_note"]

    async def test_on_the_hub_every_quant_with_size_hash_and_commit(
        self, mine: Library, hub: Hub, env: Env
    ) -> None:
        shown = await catalog.show(mine, "tiny", hub=True, env=env)
        (repo,) = shown["hub"]
        assert repo["commit"] == hub.repositories[REPO].branches["main"]
        assert [(q["ref"], q["listed"], q["same_bytes"], q["size"]) for q in repo["quants"]] == [
            ("tiny:Q4_K_M", True, True, len(Q4)),
            ("tiny:Q8_0", False, None, len(Q8)),
        ]
        assert repo["quants"][1]["files"] == [
            {"name": "tiny-Q8_0.gguf", "size": len(Q8), "sha256": sha256(Q8)}
        ]

    async def test_bytes_that_changed_on_the_hub_are_marked(self, mine: Library, hub: Hub, env: Env) -> None:
        hub.repositories[REPO].commit({"tiny-Q4_K_M.gguf": body(5)})
        (repo,) = (await catalog.show(mine, "tiny", hub=True, env=env))["hub"]
        assert [(q["listed"], q["same_bytes"]) for q in repo["quants"]] == [(True, False)]

    async def test_a_bare_repository(self, mine: Library, env: Env) -> None:
        shown = await catalog.show(mine, "hf:other/tiny-more-GGUF", env=env)
        assert (shown["id"], shown["hub"][0]["gated"]) == (None, True)
        assert shown["hub"][0]["quants"][0]["add"] == "hf:other/tiny-more-GGUF/x-Q4_0.gguf"
        assert "ref" not in shown["hub"][0]["quants"][0]

    async def test_a_quant_that_is_not_listed_is_no_other(self, mine: Library, env: Env) -> None:
        for name, there in (("tiny:Q9", "tiny:Q4_K_M"), ("qwen3-8b:Q8_0", "qwen3-8b:Q4_K_M")):
            with pytest.raises(UnknownModel, match="has no variant") as caught:
                await catalog.show(mine, name, env=env)
            assert there in (caught.value.hint or "")
            assert "--hub" in (caught.value.hint or "")
        with pytest.raises(UnknownModel, match="repositories hold none") as caught:
            await catalog.show(mine, "tiny:Q9", hub=True, env=env)
        assert caught.value.cause == "They hold Q4_K_M, Q8_0."
        assert (await catalog.show(mine, "tiny:q8_0", hub=True, env=env))["id"] == "tiny"
        assert (await catalog.show(mine, "tiny:q4_k_m", env=env))["id"] == "tiny"

    async def test_what_can_not_be_added_is_not_offered(self, mine: Library, hub: Hub, env: Env) -> None:
        long, part = f"{'x' * 300}-Q5_0.gguf", "p-Q2_K-00001-of-00002.gguf"
        hub.repositories[REPO].commit({long: Q4, part: Q4, "a:b-Q6_K.gguf": Q4, "good-Q8_0.gguf": Q8})
        (repo,) = (await catalog.show(mine, f"hf:{REPO}", env=env))["hub"]
        found = {row["quant"]: (row["complete"], row["usable"], row["add"]) for row in repo["quants"]}
        assert found == {
            "Q5_0": (True, False, None),
            "Q2_K": (False, True, None),
            "Q6_K": (True, False, None),
            "Q8_0": (True, True, f"hf:{REPO}/good-Q8_0.gguf"),
        }

    async def test_what_can_not_be_shown(self, mine: Library, env: Env) -> None:
        with pytest.raises(UnknownModel):
            await catalog.show(mine, "nosuch", env=env)
        with pytest.raises(UsageError, match="does not come from the Hub"):
            await catalog.show(mine, "smollm2-135m-instruct", hub=True, env=env)
        with pytest.raises(UsageError, match="names a file"):
            await catalog.show(mine, f"hf:{REPO}/tiny-Q8_0.gguf", env=env)

    async def test_names_of_strangers_are_cleaned(self, mine: Library, hub: Hub, env: Env) -> None:
        hub.repositories[REPO].commit({"a\x1b[31m-Q8_0.gguf": Q8})
        (repo,) = (await catalog.show(mine, "tiny", hub=True, env=env))["hub"]
        assert "\x1b" not in str(repo)
