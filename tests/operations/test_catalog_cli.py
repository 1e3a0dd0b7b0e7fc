"""The commands as a user types them, in processes of their own, against a Hub on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import pytest
from click.testing import CliRunner

from appliance.catalog import Use
from appliance.cli.main import appliance
from appliance.cli.models import listing
from appliance.errors import UnknownModel
from tests.end_to_end.appliance import Done, Home
from tests.hub import server
from tests.hub.server import Hub, Repository
from tests.operations.hubhouse import body, entry, sha256

REPO = "owner/tiny-GGUF"
Q4, Q8 = body(4), body(8, file_type=7)


@pytest.fixture
def repo(hub: Hub) -> Repository:
    made = hub.add(REPO, downloads=12_345, likes=6)
    made.commit({"tiny-Q4_K_M.gguf": Q4, "tiny-Q8_0.gguf": Q8})
    return made


@pytest.fixture
def home(tmp_path: Path, repo: Repository, env: dict[str, str]) -> Home:
    """A user whose own models.toml lists the Q4_K_M."""
    made = Home(tmp_path / "home", {**env, "no_proxy": "127.0.0.1", "COLUMNS": "80", "HF_HUB_OFFLINE": ""})
    (made.root / "config").mkdir(parents=True)
    text = entry("tiny", REPO, repo.branches["main"], "tiny-Q4_K_M.gguf", Q4)
    (made.root / "config/models.toml").write_text(text)
    return made


def models(home: Home, *words: str) -> Done:
    done = home.run("models", *words)
    assert done.code == 0, done.err
    return done


def test_from_the_search_to_a_pinned_model_that_a_changed_repository_does_not_touch(
    home: Home, hub: Hub, repo: Repository
) -> None:
    rows = models(home, "search", "tiny", "--hub", "--json").document["models"]
    assert [(row["where"], row.get("listed_as")) for row in rows] == [("catalog", None), ("hub", ["tiny"])]

    (shown,) = models(home, "show", "tiny", "--hub", "--json").document["hub"]
    assert [(q["ref"], q["listed"]) for q in shown["quants"]] == [("tiny:Q4_K_M", True), ("tiny:Q8_0", False)]
    first = shown["commit"]

    pulled = models(home, "pull", "tiny:q8_0", "--json").document
    assert (pulled["ref"], Path(pulled["path"]).read_bytes() == Q8) == ("tiny:Q8_0", True)
    listed = {row["ref"]: row for row in models(home, "list", "--json").document["models"]}
    assert (listed["tiny:Q8_0"]["pin"], listed["tiny:Q8_0"]["state"]) == ("hub", "here")
    assert listed["tiny:Q4_K_M"]["pin"] == "user"
    assert listed["qwen3-8b:Q4_K_M"]["pin"] == "catalog"

    repo.commit({"tiny-Q8_0.gguf": body(9)})
    models(home, "rm", "tiny:Q8_0")
    again = models(home, "pull", "tiny:Q8_0", "--json").document
    assert Path(again["path"]).read_bytes() == Q8
    resolved = [request.path for request in hub.requests if "/resolve/" in request.path]
    assert {path.split("/resolve/")[1] for path in resolved} == {f"{first}/tiny-Q8_0.gguf"}
    shown = models(home, "show", "tiny", "--json").document
    assert [(v["ref"], v["pin"]) for v in shown["variants"]] == [
        ("tiny:Q4_K_M", "user"),
        ("tiny:Q8_0", "hub"),
    ]


def test_a_file_of_the_hub_is_added_pulled_and_shown(home: Home, hub: Hub) -> None:
    hub.add("else/Other-2B-GGUF", license="mit").commit({"Other-2B-Q5_K_M.gguf": body(5)})
    done = models(home, "add", "hf:else/Other-2B-GGUF/Other-2B-Q5_K_M.gguf", "--json").document
    assert (done["ref"], done["pin"], done["files"][0]["sha256"]) == (
        "other-2b:Q5_K_M",
        "hub",
        sha256(body(5)),
    )
    assert done["file"] == str(home.root / "config/models.toml")
    assert Path(models(home, "pull", "other-2b", "--json").document["path"]).read_bytes() == body(5)


def test_what_people_read_fits_eighty_columns(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**home.env, "APPLIANCE_HOME": str(home.root)}.items():
        monkeypatch.setenv(name, value)

    def said(*words: str) -> str:
        done = CliRunner().invoke(appliance, ["models", *words])
        assert done.exit_code == 0, done.output
        return done.output

    for words in (
        ("list",),
        ("search", "qwen3"),
        ("search", "tiny", "--hub"),
        ("show", "qwen2.5-coder-3b-instruct"),
        ("show", "tiny", "--hub"),
        ("show", f"hf:{REPO}"),
    ):
        lines = [line for line in said(*words).splitlines() if "http" not in line and "--json" not in line]
        assert max(len(line.rstrip()) for line in lines) <= 80, words
    assert said("list").split()[:5] == ["Model", "Size", "Fits", "State", "Disk"]
    monkeypatch.delenv("COLUMNS")
    assert max(len(line) for line in said("list").splitlines()) <= 120
    assert "Use  " in said("list")
    assert "12k" in said("search", "tiny", "--hub")
    assert "listed" in said("show", "tiny", "--hub")


def test_offline_and_unreachable_are_said_and_the_catalog_still_answers(home: Home, hub: Hub) -> None:
    for env, said in (
        ({"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE is set"),
        ({"HF_ENDPOINT": "http://hub.invalid"}, "hub.invalid can't be reached"),
    ):
        done = home.run("models", "search", "nosuchmodel", "--hub", env=env)
        assert (done.code, said in done.err) == (1, True), done.err
        assert home.run("models", "show", "tiny", env=env).code == 0
    assert hub.requests == []


def test_a_hub_that_fails_hides_no_hit_of_the_catalog(
    home: Home, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**home.env, "APPLIANCE_HOME": str(home.root)}.items():
        monkeypatch.setenv(name, value)
    hub.acts = [server.says(503)] * 2
    done = CliRunner().invoke(appliance, ["models", "search", "tiny", "--hub"])
    assert (done.exit_code, "tiny " in done.stdout, "status 503" in done.stderr) == (0, True, True)
    done = CliRunner().invoke(appliance, ["models", "search", "tiny", "--hub", "--json"])
    document = json.loads(done.stdout)
    assert [row["id"] for row in document["models"]] == ["tiny"]
    assert (document["hub_error"]["code"], done.exit_code) == ("hub", 0)
    monkeypatch.setenv("HF_ENDPOINT", "http://[::1")
    done = CliRunner().invoke(appliance, ["models", "search", "tiny", "--hub"])
    assert (done.exit_code, "HF_ENDPOINT" in done.stderr) == (0, True)


def test_files_of_one_quantisation_are_told_apart(
    home: Home, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**home.env, "APPLIANCE_HOME": str(home.root)}.items():
        monkeypatch.setenv(name, value)
    two = hub.add("own/two")
    two.commit({"a-Q4_0-00001-of-00002.gguf": body(1)[:1500], "b-Q8_0.gguf": Q8, "c-Q8_0.gguf": Q4})
    done = CliRunner().invoke(appliance, ["models", "show", "hf:own/two"])
    lines = done.output.splitlines()
    assert [line.split()[-1] for line in lines if line.startswith("Q8_0")] == ["b-Q8_0.gguf", "c-Q8_0.gguf"]
    assert [line.split()[-3:] for line in lines if line.startswith("Q4_0")] == [["parts", "are", "missing"]]
    assert lines[-1] == "Take one: appliance models add hf:own/two/b-Q8_0.gguf"


def test_a_family_or_use_that_is_none_is_said(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APPLIANCE_HOME", str(home.root))
    done = CliRunner().invoke(appliance, ["models", "list", "--family", "qwen4"])
    assert isinstance(done.exception, UnknownModel)
    assert "qwen3" in (done.exception.cause or "")
    done = CliRunner().invoke(appliance, ["models", "list", "--use", "bogus"])
    assert (done.exit_code, "embedding" in done.stderr) == (2, True)
    assert set(listing.USES) == set(get_args(Use))


def test_errors_are_one_document_and_one_story(home: Home) -> None:
    done = home.run("models", "add", f"hf:{REPO}/none-Q4_0.gguf", "--json")
    assert (done.code, done.document["error"]["code"]) == (1, "not_on_hub")
    assert "Traceback" not in done.err
    assert home.run("models", "add", "https://me:pw@host.example/a-Q4_0.gguf").code == 2
    assert home.run("models", "search").code == 2
