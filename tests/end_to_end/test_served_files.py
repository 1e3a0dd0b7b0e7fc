"""The files of a model that is served: damaged and mended, removed and fetched again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.shelf import catalog
from tests.end_to_end.appliance import Home, Running, until
from tests.end_to_end.local_host import serving
from tests.store.helpers import MIB, flip
from tests.store.server import Host


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, smollm2_path: Path) -> Iterator[tuple[Running, Host]]:
    """A daemon that serves a real model, which comes from the local server."""
    with serving(smollm2_path.read_bytes()) as real:
        home = Home(tmp_path_factory.mktemp("served"), {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"})
        home.catalog(catalog(real, "local"))
        with home.up("local", "--ctx", "512", "--parallel", "1") as up:
            yield up, real


def engine(up: Running) -> dict[str, Any]:
    return dict(up.raw("GET", "/api/status")[1]["engines"][0])


def ready(up: Running) -> bool:
    return bool(engine(up)["state"] == "ready")


def test_a_damaged_model_that_is_served_is_mended_and_loaded_again(served: tuple[Running, Host]) -> None:
    up, real = served
    home, file = up.home, next((up.home.root / "data" / "models").rglob("*.gguf"))
    assert home.client().repair("local") == {"ref": "local:F32", "fetched": 0}
    whole = home.here("models", "repair", "local", "--json").document
    size = file.stat().st_size
    assert whole == {"model": "local:F32", "repaired": False, "fetched": 0, "size": size, "damage": []}
    pid, before = engine(up)["pid"], real.sent
    flip(file, 50 * MIB)
    mended = home.run("models", "repair", "local", "--json")
    assert mended.code == 0, mended.err
    assert "failed" not in mended.err
    found = mended.document
    assert (found["model"], found["repaired"], found["fetched"], found["size"]) == (
        "local:F32", True, 8 * MIB, size,
    )  # fmt: skip
    assert [item["ranges"] for item in found["damage"]] == [[[48 * MIB, 56 * MIB]]]
    assert real.sent - before <= 9 * MIB, "only the chunk that differs"
    until(lambda: ready(up), 60, "it is loaded again")
    now = engine(up)
    assert now["pid"] != pid
    assert (now["ctx"], now["parallel"]) == (512, 1), "with the same wishes"
    assert home.here("models", "verify", "local").code == 0


def test_a_model_that_is_served_is_removed_only_by_force(served: tuple[Running, Host]) -> None:
    up, _ = served
    home, pid = up.home, engine(up)["pid"]
    refused = home.here("models", "rm", "local")
    assert (refused.code, "is loaded now" in refused.err) == (1, True)
    assert home.client().remove("local", force=True)["freed"] > 90 * MIB
    assert engine(up)["state"] == "absent"
    until(lambda: not Path(f"/proc/{pid}").exists(), 10, "the engine is gone")
    assert home.client().call("GET", "/api/downloads")["downloads"] == []
    assert home.here("models", "list", "--here", "--json").document["models"] == []
    gone = home.here("models", "verify", "local")
    assert "which is loaded" not in gone.err

    ask = {"model": "local", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
    code, answer = up.raw("POST", "/v1/chat/completions", ask)
    assert code == 503
    assert "appliance models pull local:F32" in json.dumps(answer)
    assert home.here("models", "pull", "local").code == 0
    until(lambda: ready(up), 60, "it is loaded again")
    assert up.raw("POST", "/v1/chat/completions", ask)[0] == 200
