"""`up` with an engine that does less than planned: told at once, in the background too, and by exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from appliance.errors import ApplianceError
from tests.end_to_end.appliance import MODEL, Home, until
from tests.engines.fake_engine import Script, install, starts

CARD = "CUDA0: Some GPU (8192 MiB, 3000 MiB free)"
IN_RAM = (
    "load_tensors: offloaded 0/31 layers to GPU",
    "load_tensors:   CPU_Mapped model buffer size =    90.00 MiB",
)
ON_CARD = (
    "load_tensors: offloaded 31/31 layers to GPU",
    "load_tensors:        CUDA0 model buffer size =    90.00 MiB",
)
ASKED = (MODEL, "--parallel", "2")
UP = ("up", *ASKED, "--port", "0")


def engine(folder: Path, *scripts: Script) -> dict[str, str]:
    build = install(folder / "engine", *scripts, devices=[CARD])
    return {"APPLIANCE_ENGINE__KIND": "llama-server", "APPLIANCE_ENGINE__LLAMA_SERVER": str(build.path)}


def test_what_the_engine_does_less_than_planned_is_told_at_once(home: Home, tmp_path: Path) -> None:
    env = engine(tmp_path, Script(load_lines=IN_RAM))
    with home.up(*ASKED, env=env) as up:
        assert "cpu_fallback" in {note["code"] for note in up.ready["notes"]}
        assert "! Less than planned: " in up.err_file.read_text()
    home.run("down")
    done = home.run(*UP, "--detach", env=env)
    try:
        assert done.code == 0, done.err
        assert "! Less than planned: " in done.err
        assert "Less than planned" not in done.out
    finally:
        home.run("down")


def test_a_step_down_is_told_and_a_retry_forgets_it(home: Home, tmp_path: Path) -> None:
    env = engine(tmp_path, Script(room=0), Script(load_lines=ON_CARD))
    with home.up(*ASKED, env=env) as up:
        (note,) = up.ready["notes"]
        assert note["code"] == "stepped_down"
        assert "ran out while loading" in note["detail"]
        smaller = up.ready["plan"]["flags"]
    done = home.run("plan", *ASKED, "--json", env=env)
    assert done.code == 0, done.err
    planned = done.document
    assert planned["flags"] == smaller
    with home.up(*ASKED, env=env) as up:
        (note,) = up.ready["notes"]
        assert note["code"] == "ran_out_before"
        assert up.ready["plan"]["flags"] == smaller
    with home.up(*ASKED, "--retry", env=env) as up:
        assert up.ready["notes"] == []
        assert up.ready["plan"]["flags"] != smaller


@pytest.mark.parametrize("detach", [(), ("--detach",)], ids=["foreground", "detached"])
def test_a_load_that_ends_for_lack_of_memory_does_not_fit(
    home: Home, tmp_path: Path, detach: tuple[str, ...]
) -> None:
    done = home.run(*UP, *detach, "--json", env=engine(tmp_path, Script(room=0)))
    assert done.code == 5, done.err
    tried = starts(tmp_path / "engine")
    assert done.err.count("Tried: ") == tried > 2
    assert f"also with {tried - 1} smaller plans" in done.err
    assert json.loads(done.out)["error"]["code"] == "out_of_memory"


def test_a_start_in_the_background_that_is_stopped_says_by_what(home: Home, tmp_path: Path) -> None:
    env = engine(tmp_path, Script(hang_loading=True))
    process, err_file = home.spawn(*UP, "--detach", env=env)
    try:

        def loads() -> bool:
            try:
                return any(one.state == "loading" for one in home.client().status().engines)
            except ApplianceError:
                return False

        until(loads, 30, "the load has begun")
        assert home.run("down").code == 0
        assert process.wait(30) == 1
    finally:
        if process.poll() is None:
            process.kill()
        assert process.stdout is not None
        process.stdout.close()
    assert "stopped by `appliance down`" in err_file.read_text()
    assert "exit code" not in err_file.read_text()
