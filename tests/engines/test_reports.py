"""Crash reports: what happened, kept after the restart and on disk, bounded and private."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import asdict
from pathlib import Path

import pytest

from appliance.engines import Engine, reports
from appliance.errors import EngineFailed
from appliance.paths import Paths
from tests.engines.fake_engine import Script, install
from tests.engines.launches import MODEL_ID, Watch, launch
from tests.engines.requests import QUICK, stream

MODEL = Path("/nonexistent.gguf")


async def test_a_crash_is_told_after_the_restart_and_lies_on_disk(paths: Paths) -> None:
    watch = Watch()
    build = install(paths.data / "fake", Script(load_lines=("srv  main: a line of its own",)), Script())
    engine = Engine(build, launch(MODEL), paths=paths, limits=QUICK, on_change=watch.on_change)
    await engine.start()
    await engine.wait_ready()
    assert engine.snapshot.crash is None
    assert await stream(engine)
    os.kill(engine.snapshot.pid or 0, signal.SIGSEGV)
    now = await watch.until(lambda s: s.state == "ready" and s.restarts == 1)
    crash = now.crash
    assert crash is not None
    assert crash.message == "The engine ended while serving (signal 11 (SIGSEGV))."
    assert crash.exit == "signal 11 (SIGSEGV)"
    assert "although it had worked" in (crash.cause or "")
    assert "another processor" not in (crash.cause or "")
    assert crash.hint is not None
    assert "--engine" not in crash.hint
    assert "`appliance engines list`" in crash.hint
    assert "srv  main: a line of its own" in crash.last_lines
    assert crash.flags == launch(MODEL).plan.flags
    assert (crash.build, crash.requests) == (build.build, 1)
    assert crash.uptime_s is not None
    assert 0 < crash.uptime_s < 60
    json.dumps(asdict(crash))
    await engine.stop()
    assert reports.read(paths, MODEL_ID) == (crash,)
    file = reports.file_of(paths, MODEL_ID)
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)


async def test_a_load_that_fails_has_a_report_and_a_planned_stop_has_none(paths: Paths) -> None:
    engine = Engine(
        install(paths.data / "fake", Script(die_loading=3), Script()),
        launch(MODEL),
        paths=paths,
        limits=QUICK,
    )
    await engine.start()
    with pytest.raises(EngineFailed):
        await engine.wait_ready()
    crash = engine.snapshot.crash
    assert crash is not None
    assert (crash.exit, crash.uptime_s, crash.requests) == ("exit code 3", None, 0)
    await engine.start()
    await engine.wait_ready()
    await engine.stop()
    assert reports.read(paths, MODEL_ID) == (crash,)


def test_the_file_keeps_the_newest_and_a_broken_one_is_started_anew(paths: Paths) -> None:
    build = install(paths.data / "fake")
    for number in range(reports.KEPT + 3):
        error = EngineFailed(f"Crash {number}.", cause="because", hint="do")
        error.lines = ("x" * 5_000,) * 20
        report = reports.report_of(error, "exit code 1", build, launch(MODEL), ready_at=None, requests=0)
        reports.write(paths, MODEL_ID, report)
    found = reports.read(paths, MODEL_ID)
    assert [one.message for one in found] == [f"Crash {n}." for n in (7, 6, 5, 4, 3)]
    assert reports.file_of(paths, MODEL_ID).stat().st_size < 100_000
    for rubbish in ("{", "[]", '{"crashes": [{"at": "x"}]}', "\x00"):
        reports.file_of(paths, MODEL_ID).write_text(rubbish)
        assert reports.read(paths, MODEL_ID) == ()
    reports.write(paths, MODEL_ID, found[0])
    assert reports.read(paths, MODEL_ID) == (found[0],)
    assert [file.name for file in reports.file_of(paths, MODEL_ID).parent.iterdir()] == [
        reports.file_of(paths, MODEL_ID).name
    ]


def test_a_disk_that_does_not_take_it_costs_the_report_only(paths: Paths) -> None:
    (paths.state / "crashes").write_text("no folder")
    error = EngineFailed("Crash.")
    report = reports.report_of(error, "exit code 1", install(paths.data / "fake"), launch(MODEL),
                               ready_at=None, requests=0)  # fmt: skip
    reports.write(paths, MODEL_ID, report)
    assert reports.read(paths, MODEL_ID) == ()
