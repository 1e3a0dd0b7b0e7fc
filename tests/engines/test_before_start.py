"""What the supervisor asks before each start, and what its snapshot says of a running engine."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from appliance.engines import Engine, Limits
from appliance.errors import ModelMissing, NotVerified
from appliance.paths import Paths
from tests.engines.fake_engine import Script, install, starts
from tests.engines.launches import MODEL_ID, Watch, launch, plan

FAST = Limits(stall_s=1.0, load_s=20.0, probe_s=5.0, stop_s=1.0, backoff_s=(0.01,))
MODEL = Path("/nonexistent.gguf")  # the scripted engine reads no model


async def test_a_model_that_changed_while_it_was_served_is_not_started_again(paths: Paths) -> None:
    model = paths.data / "model.gguf"
    model.write_bytes(b"as pinned")
    watch = Watch()
    engine = checked(paths, model, watch)
    await engine.start()
    await asyncio.wait_for(engine.wait_ready(), 20)
    model.write_bytes(b"something else")
    os.kill(engine.snapshot.pid or 0, signal.SIGKILL)
    await watch.until(lambda s: s.state == "failed")
    with pytest.raises(NotVerified) as caught:
        await engine.wait_ready()
    assert caught.value.exit_code == 4
    failed = engine.snapshot
    assert (failed.error, failed.cause, failed.hint) == ("It changed.", "Another size.", "Verify it.")
    assert (failed.pid, engine.endpoint, starts(paths.data / "fake")) == (None, None, 1)
    model.write_bytes(b"as pinned")
    await engine.start()
    assert (await asyncio.wait_for(engine.wait_ready(), 20)).generation == 2
    await engine.stop()


async def test_a_model_that_is_gone_is_not_started_at_all(paths: Paths) -> None:
    engine = checked(paths, paths.data / "gone.gguf", Watch())
    await engine.start()
    with pytest.raises(ModelMissing):
        await asyncio.wait_for(engine.wait_ready(), 20)
    assert (engine.snapshot.state, starts(paths.data / "fake")) == ("failed", 0)


async def test_stop_does_not_wait_for_the_check_of_a_large_model(paths: Paths) -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def check() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    engine = Engine(install(paths.data / "fake"), launch(MODEL), paths=paths, limits=FAST, before_start=check)
    await engine.start()
    await begun.wait()
    await asyncio.wait_for(engine.stop(), 10)
    assert cancelled.is_set()
    assert (engine.snapshot.state, starts(paths.data / "fake")) == ("absent", 0)


def checked(paths: Paths, model: Path, watch: Watch) -> Engine:
    """An engine whose model must have nine bytes before each start."""

    async def check() -> None:
        try:
            size = os.stat(model).st_size
        except FileNotFoundError:
            raise ModelMissing("It is gone.") from None
        if size != 9:
            raise NotVerified("It changed.", cause="Another size.", hint="Verify it.")

    return Engine(
        install(paths.data / "fake"), launch(model), paths=paths, limits=FAST,
        on_change=watch.on_change, before_start=check,
    )  # fmt: skip


async def test_the_snapshot_is_named_after_the_model_and_the_socket_is_not(paths: Paths) -> None:
    engine = Engine(install(paths.data / "fake"), launch(MODEL), paths=paths, limits=FAST)
    assert engine.snapshot.id == MODEL_ID
    await engine.start()
    endpoint = await asyncio.wait_for(engine.wait_ready(), 20)
    assert engine.snapshot.id == MODEL_ID
    assert MODEL_ID not in (endpoint.socket or "")
    await engine.stop()


@pytest.mark.parametrize(
    ("planned", "lines", "layers"),
    [
        (12, ("load_tensors: something new",), None),
        (0, ("load_tensors: something new",), 0),
        (12, ("load_tensors: offloaded 0/31 layers to GPU",), 0),
        (12, ("load_tensors:   CPU_Mapped model buffer size =    92.10 MiB",), 0),
    ],
)
async def test_what_the_log_does_not_tell_is_unknown(
    paths: Paths, planned: int, lines: tuple[str, ...], layers: int | None
) -> None:
    wanted = launch(MODEL, wanted=plan(gpu_layers=planned))
    build = install(paths.data / "fake", Script(load_lines=lines))
    engine = Engine(build, wanted, paths=paths, limits=FAST)
    await engine.start()
    await asyncio.wait_for(engine.wait_ready(), 20)
    assert engine.snapshot.gpu_layers == layers
    await engine.stop()
