"""Looking after models as a user does: verify, repair, prune, rm and the list, without a daemon."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.engines.slots import Said, Shelf
from appliance.store import layout
from appliance.units import MIB
from tests.cli.indoors import Indoors
from tests.daemon.shelf import catalog
from tests.end_to_end.appliance import Home
from tests.end_to_end.local_host import always, pulled, serving
from tests.store.helpers import flip, gguf
from tests.store.server import Host, status

CHUNK = 8 * MIB
SIZE = 3 * CHUNK


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with serving(gguf(SIZE)) as made:
        yield made


@pytest.fixture
def fresh(tmp_path: Path, host: Host) -> Home:
    """A user whose catalog has three small models at the local server."""
    host.acts = []
    home = Indoors(tmp_path / "home", {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"})
    home.catalog(catalog(host, "one", "two", "three"))
    return home


def row(home: Home, name: str) -> dict[str, Any]:
    rows = home.run("models", "list", "--json").document["models"]
    return next(dict(found) for found in rows if found["id"] == name)


def test_verify_all_goes_on_says_what_is_damaged_and_repair_fetches_only_that(
    fresh: Home, host: Host
) -> None:
    _, two, three = pulled(fresh, "one", "two", "three")
    flip(two, CHUNK + 5)
    three.unlink()
    done = fresh.run("models", "verify", "--all", "--json")
    assert done.code == 4
    found = {item["model"].partition(":")[0]: item for item in done.document["models"]}
    assert (done.document["verified"], done.document["damaged"]) == (1, 2)
    assert found["one"]["verified"] is True
    assert found["two"]["damage"][0]["ranges"] == [[CHUNK, 2 * CHUNK]]
    assert found["three"]["error"]["code"] == "model_missing"
    two_row = row(fresh, "two")
    assert (two_row["state"], two_row["arrived"]) == ("damaged", 2 * CHUNK)
    again = fresh.run("models", "verify", "--all", "--json")
    assert (again.code, again.document["damaged"]) == (4, 2)

    sent = host.sent
    mended = fresh.run("models", "repair", "two", "--json")
    assert (mended.code, mended.document["fetched"]) == (0, CHUNK)
    assert host.sent - sent == CHUNK
    assert "is whole again: 24.0 MiB fetched, 24.0 MiB in all" in fresh.run("models", "repair", "three").out
    assert fresh.run("models", "verify", "--all").code == 0
    assert "nothing was damaged" in fresh.run("models", "repair", "two").out


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("verify",), 2),
        (("verify", "one", "--all"), 2),
        (("verify", "nothing-like-it"), 4),
        (("verify", "one"), 4),
        (("verify", "--all"), 0),
        (("repair", "one"), 4),
        (("prune", "--unused", "soon"), 2),
        (("prune", "--partials"), 0),
        (("rm", "one"), 4),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value),
)
def test_exit_codes_with_nothing_here(fresh: Home, arguments: tuple[str, ...], code: int) -> None:
    done = fresh.run("models", *arguments)
    assert done.code == code, done.err
    assert "Traceback" not in done.err


def test_prune_lists_first_and_frees_what_it_said(fresh: Home, host: Host) -> None:
    one, two = pulled(fresh, "one", "two")
    two.write_bytes(bytes(SIZE))
    assert fresh.run("models", "verify", "two").code == 4
    always(host, status(404))
    flip(one, 3)
    assert fresh.run("models", "verify", "one").code == 4

    listed = fresh.run("models", "prune")
    assert listed.code == 0
    assert "--partials" in listed.out
    assert "24.0 MiB" in listed.out
    refused = fresh.run("models", "prune", "--partials", "--quarantine")
    assert refused.code == 2
    assert "1 damaged models, of which a repair would fetch only what differs; 1 quarantined" in refused.err
    assert "--yes" in refused.err
    (one.parent / "notes.txt").write_text("mine")
    dry = fresh.run("models", "prune", "--partials", "--quarantine", "--dry-run", "--json").document
    done = fresh.run("models", "prune", "--partials", "--quarantine", "--yes", "--json")
    assert f"{one.parent / 'notes.txt'} is not of this program, so it stays." in done.err
    real = done.document
    assert (dry["dry_run"], real["dry_run"]) == (True, False)
    assert real["items"] == dry["items"]
    assert real["freed"] == dry["freed"] >= 2 * SIZE
    assert fresh.run("models", "prune").out.strip() == "Nothing to remove."


def test_saved_prompts_go_when_they_are_asked_to(fresh: Home) -> None:
    root = fresh.root / "cache" / "prompts"
    shelf = Shelf(root)
    folder, name = shelf.prepare("ab" * 16), shelf.new_name()
    (folder / name).write_bytes(b"words" * 1_000)
    shelf.add(folder.name, name, 700, Said("b1", 4096, 2))
    (folder / shelf.new_name()).write_bytes(b"left by a stop that took too long")

    assert "--private" in fresh.run("models", "prune").out
    assert fresh.run("models", "prune", "--partials", "--quarantine", "--yes").code == 0
    assert len(shelf.entries()) == 1
    dry = fresh.run("models", "prune", "--private", "--dry-run", "--json").document
    assert [(item["kind"], item["size"]) for item in dry["items"]] == [("prompt", 5_000)]
    assert len(shelf.entries()) == 1
    done = fresh.run("models", "prune", "--private", "--json").document
    assert (done["items"], done["freed"]) == (dry["items"], 5_000)
    assert not [path for path in root.rglob("*") if path.is_file()]


def test_a_model_that_the_settings_name_is_never_unused(fresh: Home) -> None:
    pulled(fresh, "one", "two")
    assert fresh.run("config", "set", "models.default", "one").code == 0
    items = fresh.run("models", "prune", "--unused", "0s", "--dry-run", "--json").document["items"]
    assert [item["about"].split(",")[0] for item in items] == ["two:F32"]


def test_rm_also_takes_what_is_unfinished(fresh: Home) -> None:
    (one,) = pulled(fresh, "one")
    flip(one, 3)
    fresh.run("models", "verify", "one")
    done = fresh.run("models", "rm", "one", "--json")
    assert done.code == 0
    assert done.document["freed"] >= SIZE
    assert row(fresh, "one")["state"] == "absent"


def test_the_list_says_what_fits_and_what_is_here(fresh: Home) -> None:
    pulled(fresh, "one")
    here = row(fresh, "one")
    assert (here["state"], here["pin"], here["referenced"], here["used_at"]) == ("here", "user", False, None)
    assert here["disk"] >= SIZE
    assert here["fits"]["how"] == "computed"
    assert row(fresh, "two")["fits"]["how"] == "computed"  # the same bytes, so the same header
    unseen = row(fresh, "smollm2-1.7b-instruct")
    assert (unseen["fits"]["how"], unseen["fits"]["estimated"]) == ("rule", True)
    assert unseen["fits"]["where"] in ("cpu", "gpu")
    family = fresh.run("models", "list", "--family", "qwen3", "--fits", "--json").document["models"]
    assert {found["family"] for found in family} == {"qwen3"}
    uses = fresh.run("models", "list", "--use", "embedding", "--json").document["models"]
    assert all("embedding" in found["use"] for found in uses)
    assert len(uses) > 3
    assert [f["id"] for f in fresh.run("models", "list", "--here", "--json").document["models"]] == ["one"]


def test_damage_is_shown_until_it_is_removed(fresh: Home) -> None:
    (one,) = pulled(fresh, "one")
    flip(one, 3)
    for _ in range(3):
        done = fresh.run("models", "verify", "--all")
        assert done.code == 4
        assert "appliance models repair one:F32" in done.err
    (here,) = fresh.run("models", "list", "--here", "--json").document["models"]
    assert (here["id"], here["state"], here["arrived"]) == ("one", "damaged", 2 * CHUNK)
    assert fresh.run("models", "rm", "one").code == 0
    assert fresh.run("models", "verify", "--all").code == 0


def test_a_model_that_no_catalog_lists_any_more(fresh: Home) -> None:
    (one,) = pulled(fresh, "one")
    fresh.catalog("schema = 1\n")
    assert fresh.run("models", "verify", "one").code == 0
    flip(one, 3)
    done = fresh.run("models", "verify", "one")
    assert done.code == 4
    assert "models add SOURCE --id one" in done.err
    assert "models repair" not in done.err
    (here,) = fresh.run("models", "list", "--here", "--json").document["models"]
    assert (here["ref"], here["state"], here["size"], here["path"]) == ("one:F32", "damaged", None, None)
    assert "damaged" in fresh.run("models", "list", "--here").out
    refused = fresh.run("models", "repair", "one")
    assert refused.code == 4
    assert "The catalog no longer lists one:F32" in refused.err
    assert "appliance models rm one:F32" in refused.err
    assert fresh.run("models", "rm", "one", "--json").document["freed"] >= SIZE
    assert fresh.run("models", "list", "--here").out == ""
    assert fresh.run("models", "rm", "one").code == 4


def test_an_id_with_several_variants_is_asked_back(fresh: Home) -> None:
    (one,) = pulled(fresh, "one")
    (one.parent.parent / "Q8_0-0123456789ab").mkdir()
    fresh.catalog("schema = 1\n")
    done = fresh.run("models", "rm", "one")
    assert done.code == 4
    assert "Name one: one:F32, one:Q8_0." in done.err


def test_a_disk_that_takes_no_record_is_told_and_the_model_is_whole(
    fresh: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    pulled(fresh, "one")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(layout, "write_json", refuse)
    done = fresh.run("models", "verify", "one", "--json")
    assert (done.code, done.document["verified"]) == (0, True)
    assert done.document["unrecorded"] == "The file system is read-only."
    assert "could not be written down: The file system is read-only." in done.err
    removal = fresh.run("models", "rm", "one")
    assert removal.code == 1
    assert "The file system is read-only." in removal.err
    assert "Mount it writable" in removal.err
