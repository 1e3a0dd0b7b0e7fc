"""What the supervisor does when an engine misbehaves. The engine is a program that really does it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from appliance.engines import Engine, EngineSnapshot, Limits, end_orphans, session
from appliance.engines.environment import MARKER
from appliance.engines.logs import file_of
from appliance.errors import EngineFailed, EngineUnavailable
from appliance.paths import Paths
from tests.engines.fake_engine import Script, install, left, starts
from tests.engines.launches import MODEL_ID, Watch, launch

FAST = Limits(stall_s=1.0, load_s=20.0, probe_s=5.0, stop_s=1.0, backoff_s=(0.01,))
MODEL = Path("/nonexistent.gguf")  # the scripted engine reads no model


def engine_of(paths: Paths, *scripts: Script, limits: Limits = FAST, watch: Watch | None = None) -> Engine:
    build = install(paths.data / "fake", *scripts)
    return Engine(build, launch(MODEL), paths=paths, limits=limits, on_change=(watch or Watch()).on_change)


async def failure_of(engine: Engine) -> EngineFailed:
    await engine.start()
    with pytest.raises(EngineFailed) as caught:
        await asyncio.wait_for(engine.wait_ready(), 30)
    return caught.value


async def test_it_dies_at_once(paths: Paths) -> None:
    failed = await failure_of(engine_of(paths, Script(die_at_start=1)))
    assert failed.message == "The engine ended while loading (exit code 1)."
    assert starts(paths.data / "fake") == 1  # a first load that fails is not tried again


@pytest.mark.parametrize(
    ("script", "message", "cause"),
    [
        (
            Script(die_loading=1, load_lines=("ggml_backend_cuda: cudaMalloc failed: out of memory",)),
            "exit code 1",
            "The GPU ran out of memory.",
        ),
        (
            Script(die_loading=1, load_lines=("llama_kv_cache: failed to allocate buffer for kv cache",
                                              "srv load_model: failed to load model")),
            "exit code 1",
            "There is not enough memory for the KV cache.",
        ),
        (Script(die_at_start=-signal.SIGILL), "signal 4 (SIGILL)",
         "This build needs processor instructions that this machine lacks."),
        (Script(die_loading=-signal.SIGKILL, load_s=0.1), "signal 9 (SIGKILL)",
         "It was killed, most often by the system because memory ran out."),
        (Script(die_at_start=-signal.SIGSEGV), "signal 11 (SIGSEGV)",
         "It crashed (segmentation fault); a build for another processor does that."),
    ],
)  # fmt: skip
async def test_the_end_of_a_load_is_explained(paths: Paths, script: Script, message: str, cause: str) -> None:
    engine = engine_of(paths, script)
    failed = await failure_of(engine)
    assert message in failed.message
    assert failed.cause == cause
    assert failed.hint
    assert failed.lines[: len(script.load_lines)] in (script.load_lines, ())
    snapshot = engine.snapshot
    assert (snapshot.error, snapshot.cause, snapshot.hint) == (failed.message, failed.cause, failed.hint)


async def test_it_hangs_while_loading(paths: Paths) -> None:
    watch = Watch()
    engine = engine_of(paths, Script(hang_loading=True), watch=watch)
    failed = await failure_of(engine)
    assert failed.message == "The engine hangs while loading."
    pids = {snapshot.pid for snapshot in watch.seen if snapshot.pid}
    assert pids
    assert not any(psutil.pid_exists(pid) for pid in pids)


async def test_a_slow_load_is_waited_for(paths: Paths) -> None:
    engine = engine_of(paths, Script(load_s=1.5), limits=Limits(stall_s=60, backoff_s=()))
    await engine.start()
    await asyncio.wait_for(engine.wait_ready(), 20)
    assert engine.snapshot.state == "ready"
    await engine.stop()


async def test_less_context_than_planned_is_not_ready(paths: Paths) -> None:
    failed = await failure_of(engine_of(paths, Script(ctx=256)))
    assert failed.message == "The engine started but does not work."
    assert failed.cause == "planned were 2 slots of 512 tokens; it has 2 of 256"


async def test_an_engine_that_cannot_decode_is_not_ready(paths: Paths) -> None:
    failed = await failure_of(engine_of(paths, Script(probe_status=500)))
    assert failed.cause is not None
    assert "Compute error." in failed.cause


async def test_stop_during_a_load_ends_it(paths: Paths) -> None:
    watch = Watch()
    engine = engine_of(paths, Script(hang_loading=True), limits=Limits(), watch=watch)
    await engine.start()
    waiting = asyncio.create_task(engine.wait_ready())
    pid = (await watch.until(lambda s: s.state == "loading")).pid
    assert pid is not None
    await engine.stop()
    with pytest.raises(EngineUnavailable):
        await waiting
    assert not psutil.pid_exists(pid)
    assert watch.states() == ["starting", "loading", "stopping", "absent"]


async def test_sigterm_that_is_ignored_is_followed_by_sigkill(paths: Paths) -> None:
    engine = engine_of(paths, Script(ignore_sigterm=True))
    await engine.start()
    await engine.wait_ready()
    pid = engine.snapshot.pid
    assert pid is not None
    await asyncio.wait_for(engine.stop(), 10)
    assert not psutil.pid_exists(pid)


async def test_what_it_leaves_behind_is_ended_too(paths: Paths) -> None:
    engine = engine_of(paths, Script(leak_child=True))
    await engine.start()
    await engine.wait_ready()
    (leaked,) = psutil.Process(engine.snapshot.pid).children()
    await engine.stop()
    assert not leaked.is_running()


async def test_a_child_with_a_session_of_its_own_is_found_by_its_marker(paths: Paths) -> None:
    engine = engine_of(paths, Script(leak_session=True))
    await engine.start()
    await engine.wait_ready()
    (leaked,) = psutil.Process(engine.snapshot.pid).children()
    assert os.getsid(leaked.pid) == leaked.pid
    await engine.stop()
    assert not leaked.is_running()
    assert await asyncio.to_thread(left, paths.data / "fake") == []


async def test_a_flood_of_lines_blocks_nobody_and_is_counted(paths: Paths) -> None:
    engine = engine_of(paths, Script(flood_lines=200_000), limits=Limits(stop_s=1.0))
    await engine.start()
    await asyncio.wait_for(engine.wait_ready(), 120)
    await engine.stop()
    lines = engine.lines(limit=10_000)
    assert len(lines) <= 2_000
    assert any("lines left out" in line.line for line in lines)
    kept = sum(file.stat().st_size for file in paths.logs.glob("engine-*"))
    assert 0 < kept <= 3 * (4 << 20)


async def test_a_disk_that_takes_nothing_holds_up_neither_the_engine_nor_the_reader(paths: Paths) -> None:
    file = file_of(paths, MODEL_ID).path
    file.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(file)  # to open it for writing waits for a reader, which never comes
    engine = engine_of(paths, Script(flood_lines=20_000))
    await engine.start()
    await asyncio.wait_for(engine.wait_ready(), 30)
    assert len(engine.lines(limit=10_000)) > 1_000
    async with asyncio.timeout(15):
        await engine.stop()
    os.close(os.open(file, os.O_RDONLY | os.O_NONBLOCK))  # lets the writer go


async def test_a_load_that_hangs_after_a_crash_is_tried_again(paths: Paths) -> None:
    watch = Watch()
    engine = engine_of(paths, Script(), Script(hang_loading=True), Script(), watch=watch)
    await engine.start()
    await engine.wait_ready()
    os.kill(engine.snapshot.pid or 0, signal.SIGKILL)
    await watch.until(lambda s: s.state == "ready" and s.restarts == 2)
    errors = [s.error for s in watch.seen if s.restarts == 2]
    assert errors[0] == "The engine hangs while loading."
    await engine.stop()


async def test_failed_is_left_by_a_start_and_by_a_stop(paths: Paths) -> None:
    engine = engine_of(paths, Script(die_at_start=1), Script(), Script(die_at_start=1))
    assert (await failure_of(engine)).message
    await engine.start()
    await asyncio.wait_for(engine.wait_ready(), 20)
    await engine.stop()
    assert (await failure_of(engine)).message
    assert engine.snapshot.state == "failed"
    await engine.stop()
    assert (engine.snapshot.state, engine.snapshot.error) == ("absent", None)


async def test_a_start_during_a_stop_starts_it_again(paths: Paths) -> None:
    engine = engine_of(paths, Script(ignore_sigterm=True), Script())
    await engine.start()
    await engine.wait_ready()
    stopping = asyncio.create_task(engine.stop())
    await asyncio.sleep(0)
    await engine.start()
    await asyncio.gather(stopping, engine.wait_ready())
    assert (engine.snapshot.state, starts(paths.data / "fake")) == ("ready", 2)
    await engine.stop()


async def test_a_stop_that_nobody_waits_for_any_more_is_carried_out(paths: Paths) -> None:
    watch = Watch()
    engine = engine_of(paths, Script(ignore_sigterm=True), watch=watch)
    await engine.start()
    await engine.wait_ready()
    stopping = asyncio.create_task(engine.stop())
    await watch.until(lambda s: s.state == "stopping")
    stopping.cancel()
    await watch.until(lambda s: s.state == "absent")
    assert await asyncio.to_thread(left, paths.data / "fake") == []


async def test_crashes_are_answered_a_few_times_only(paths: Paths) -> None:
    watch = Watch()
    engine = engine_of(paths, Script(), watch=watch)
    await engine.start()
    for generation in range(1, 4):
        endpoint = await asyncio.wait_for(engine.wait_ready(), 20)
        assert endpoint.generation == generation
        pid = engine.snapshot.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await watch.until(lambda s, was=generation: s.restarts == was)  # type: ignore[misc]
    last = await asyncio.wait_for(engine.wait_ready(), 20)
    assert (last.generation, engine.snapshot.restarts) == (4, 3)
    os.kill(engine.snapshot.pid or 0, signal.SIGKILL)
    await watch.until(lambda s: s.state == "failed")
    assert engine.snapshot.error == "The engine crashed 4 times in 5 minutes; it stays down."
    assert engine.snapshot.cause == "It was killed by another program or by a person."
    assert engine.snapshot.hint == f"`appliance models restart {engine.launch.model_id}` tries again."
    assert engine.endpoint is None
    await engine.start()  # failed can always be left
    assert (await asyncio.wait_for(engine.wait_ready(), 20)).generation == 5
    await engine.stop()


async def test_a_crash_in_a_stream_breaks_it_and_frees_the_endpoint_at_once(paths: Paths) -> None:
    watch = Watch()
    engine = engine_of(paths, Script(die_after_tokens=2), Script(), watch=watch)
    await engine.start()
    endpoint = await engine.wait_ready()
    body = {"stream": True, "messages": []}
    with engine.busy():
        async with session(endpoint) as client:
            answer = await client.post("/v1/chat/completions", json=body)
            with pytest.raises(Exception, match=r"[Pp]ayload|[Cc]onnection"):
                await answer.read()
    await watch.until(lambda s: s.state == "ready" and s.restarts == 1)
    crashed = next(s for s in watch.seen if s.state == "starting" and s.restarts == 1)
    assert crashed.error == "The engine ended while serving (signal 9 (SIGKILL))."
    assert engine.snapshot.slots_busy == 0
    await engine.stop()


async def test_a_listener_that_raises_does_not_end_the_engine(paths: Paths) -> None:
    def listener(_: EngineSnapshot) -> None:
        raise RuntimeError("broken listener")

    build = install(paths.data / "fake", Script())
    engine = Engine(build, launch(MODEL), paths=paths, limits=FAST, on_change=listener)
    await engine.start()
    await asyncio.wait_for(engine.wait_ready(), 20)
    await engine.stop()


async def test_no_slot_can_be_taken_before_it_is_ready(paths: Paths) -> None:
    engine = engine_of(paths)
    with pytest.raises(EngineUnavailable, match="is absent"), engine.busy():
        pass


async def test_a_program_that_cannot_start_is_explained(paths: Paths) -> None:
    engine = engine_of(paths, Script())
    program = paths.data / "fake" / "llama-server"
    program.write_text("#!/nonexistent/interpreter\n")
    failed = await failure_of(engine)
    assert str(program) in failed.message
    assert failed.cause == "No such file or directory"


async def test_an_orphan_of_a_dead_daemon_is_ended_and_a_reused_pid_is_not(paths: Paths) -> None:
    # init adopts a dead daemon's engine, so the orphan must not be a child of this process
    spawn = "import subprocess as s; print(s.Popen(['sleep', '600'], stdout=-3, start_new_session=True).pid)"
    orphan, innocent = [psutil.Process(await _printed(spawn, marker)) for marker in ("mine", "another")]
    gone = await asyncio.create_subprocess_exec("true")
    await gone.wait()
    folder = paths.state / "engines"
    folder.mkdir()
    for child in (orphan, innocent):
        started = child.create_time()
        (folder / f"{child.pid}.json").write_text(
            f'{{"pid": {child.pid}, "started": {started}, "marker": "mine", "socket": null,'
            f' "daemon": {gone.pid}, "daemon_started": 1.0}}'
        )
    (folder / "torn.json").write_text("{")
    assert await asyncio.to_thread(end_orphans, paths) == (orphan.pid,)
    assert not orphan.is_running()
    assert innocent.is_running()
    assert list(folder.iterdir()) == []
    innocent.kill()


async def _printed(script: str, marker: str) -> int:
    """The number that a short Python script prints; its children are adopted by init."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE, env=dict(os.environ) | {MARKER: marker}
    )
    assert process.stdout is not None
    line = await process.stdout.readline()
    await process.wait()
    return int(line)


async def test_an_engine_of_a_running_daemon_is_left_alone(paths: Paths) -> None:
    engine = engine_of(paths, Script())
    await engine.start()
    await engine.wait_ready()
    assert await asyncio.to_thread(end_orphans, paths) == ()
    assert engine.snapshot.state == "ready"
    await engine.stop()


async def test_without_a_parent_death_signal_the_launcher_stays_and_ends_with_its_engine(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("appliance.engines.process._parent_death_signal", lambda: False)
    watch = Watch()
    engine = engine_of(paths, Script(), watch=watch)
    await engine.start()
    await asyncio.wait_for(engine.wait_ready(), 20)
    launcher = psutil.Process(engine.snapshot.pid)
    (program,) = launcher.children()
    launcher.kill()  # the engine behind it must not stay
    await watch.until(lambda s: s.state == "ready" and s.restarts == 1)
    assert not program.is_running()
    second = psutil.Process(engine.snapshot.pid)
    (program,) = second.children()
    await engine.stop()
    assert not second.is_running()
    assert not program.is_running()
