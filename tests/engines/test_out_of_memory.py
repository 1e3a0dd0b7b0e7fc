"""Running out of memory is told apart from other ends, with the place, and is not answered by a restart."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace

import aiohttp
import pytest

from appliance import processes
from appliance.engines import Engine
from appliance.engines.crashes import FIRST_REQUESTS
from appliance.engines.failures import explain
from appliance.engines.logparse import LoadReader
from appliance.errors import EngineFailed
from appliance.paths import Paths
from appliance.planning import MemoryPlan
from tests.engines.fake_engine import Script, install, starts
from tests.engines.launches import Watch, launch, plan
from tests.engines.test_faults import FAST, MODEL


def on(name: str) -> MemoryPlan:
    return MemoryPlan(name, None, None, 0, 1, 1, 1, 1, None)


def place_of(lines: str, *devices: str, code: int = 1) -> str | None:
    """Where memory ran out, by an engine's last words."""
    reader = LoadReader()
    for line in lines.splitlines():
        reader.feed(line)
    why = explain(code, reader.failure)
    return reader.out_of_memory([on(name) for name in devices]) if why.memory == "unknown" else why.memory


VULKAN_KV = """ggml_vulkan: Device memory allocation of size 1056964608 failed.
ggml_vulkan: vk::Device::allocateMemory: ErrorOutOfDeviceMemory
0.00.602.063 E alloc_tensor_range: failed to allocate Vulkan0 buffer of size 1056964608
0.00.602.217 E llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache
0.00.602.233 E cmn  common_init_: failed to create context with model '/m.gguf'
0.00.607.297 E srv  llama_server: exiting due to model loading error"""
"""As a real llama-server said it under a limit of its address space; so is the next one."""
VULKAN_COMPUTE = """ggml_vulkan: Device memory allocation of size 28583952 failed.
ggml_vulkan: vk::Device::allocateMemory: ErrorOutOfDeviceMemory
0.01.954.109 E ggml_gallocr_reserve_n_impl: failed to allocate Vulkan0 buffer of size 28583952
0.01.954.193 E graph_reserve: failed to allocate compute buffers
0.02.105.720 E llama_init_from_model: failed to allocate compute pp buffers"""
CUDA_LOAD = """alloc_buffer: allocating 5000.00 MiB on device 1: cudaMalloc failed: out of memory
llama_model_load: error loading model: unable to allocate CUDA1 buffer"""
CUDA_RUN = """CUDA error: out of memory
  current device: 1, in function alloc at ggml-cuda.cu:500"""

NO_THREAD = """terminate called after throwing an instance of 'std::system_error'
  what():  Resource temporarily unavailable"""


@pytest.mark.parametrize(
    ("lines", "devices", "place"),
    [
        (VULKAN_KV, ("Vulkan0",), "Vulkan0"),
        (VULKAN_COMPUTE, ("Vulkan0",), "Vulkan0"),
        (CUDA_LOAD, ("CUDA0", "CUDA1"), "CUDA1"),
        (CUDA_RUN, ("CUDA0", "CUDA1"), "CUDA1"),
        (CUDA_RUN, ("CUDA0", "Vulkan1"), "Vulkan1"),
        (CUDA_RUN, ("CUDA0",), "unknown"),
        ("unable to allocate CPU buffer", ("CUDA0",), "Host"),
        ("failed to allocate CPU_REPACK buffer of size 9", ("CUDA0",), "Host"),
        ("failed to allocate Vulkan_Host buffer of size 9", ("Vulkan0",), "Host"),
        ("terminate called after throwing an instance of 'std::bad_alloc'", ("CUDA0",), "Host"),
        ("ggml.c:1589: GGML_ASSERT(ctx->mem_buffer != NULL) failed", ("CUDA0",), "Host"),
        (NO_THREAD, ("CUDA0",), "Host"),
        (NO_THREAD.splitlines()[0], ("CUDA0",), "Host"),
        ("libgomp: Thread creation failed: Resource temporarily unavailable", (), "Host"),
        ("error loading model: mmap failed: Cannot allocate memory", (), "Host"),
        ("failed to allocate buffer for kv cache", ("CUDA0",), "unknown"),
        ("failed to allocate compute pp buffers", ("CUDA0",), "unknown"),
        ("warning: failed to mlock 100-byte buffer (after locking 0 bytes): Cannot allocate memory",
         ("CUDA0",), None),
        ("error loading model: Resource temporarily unavailable", ("CUDA0",), "Host"),
        ("srv recv: Resource temporarily unavailable", ("CUDA0",), None),
        ("unknown model architecture: 'x'", ("CUDA0",), None),
        ("ggml_vulkan: device lost on Vulkan0", ("Vulkan0",), None),
        ("", ("CUDA0",), None),
    ],
)  # fmt: skip
def test_the_log_says_whose_memory_ran_out(lines: str, devices: tuple[str, ...], place: str | None) -> None:
    assert place_of(lines, *devices) == place


def test_a_warning_of_the_load_explains_no_later_end() -> None:
    reader = LoadReader()
    reader.feed("failed to allocate CUDA0 buffer of size 9")
    reader.loaded()
    assert explain(-signal.SIGSEGV, reader.failure).memory is None


@pytest.mark.parametrize("line", ["GGML_ASSERT(ctx->mem_buffer != NULL) failed", *NO_THREAD.splitlines()])
async def test_an_abort_of_a_load_without_ram_is_out_of_memory(paths: Paths, line: str) -> None:
    engine = engine_of(paths, Script(load_lines=(line,), die_loading=-signal.SIGABRT))
    failure = await failure_of(engine)
    assert failure.out_of_memory == "Host"
    assert "RAM" in (failure.cause or "")
    await engine.stop()


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS])
async def test_a_silent_crash_of_a_tight_plan_is_memory(paths: Paths, number: signal.Signals) -> None:
    watch = Watch()
    engine = engine_of(paths, Script(die_serving=-number), watch=watch, tight=True)
    await engine.start()
    await engine.wait_ready()
    await _break(engine)
    failed = await watch.until(lambda one: one.state == "failed")
    assert failed.out_of_memory == "unknown"
    assert "memory" in (failed.cause or "")
    assert "processor" not in f"{failed.cause} {failed.hint}"
    assert starts(paths.data / "fake") == 1
    await engine.stop()


async def test_a_silent_crash_while_a_tight_plan_loads_is_memory(paths: Paths) -> None:
    engine = engine_of(paths, Script(die_loading=-signal.SIGSEGV), tight=True)
    failure = await failure_of(engine)
    assert failure.out_of_memory == "unknown"
    assert "memory" in (failure.cause or "")
    await engine.stop()


@pytest.mark.parametrize(
    ("tight", "before", "number"),
    [(False, 0, signal.SIGSEGV), (True, FIRST_REQUESTS + 1, signal.SIGSEGV), (True, 0, signal.SIGILL)],
)
async def test_other_crashes_are_answered_by_a_restart(
    paths: Paths, tight: bool, before: int, number: signal.Signals
) -> None:
    watch = Watch()
    engine = engine_of(paths, Script(die_serving=-number), Script(), watch=watch, tight=tight)
    await engine.start()
    await engine.wait_ready()
    for _ in range(before):
        with engine.busy():
            pass
    await _break(engine)
    again = await watch.until(lambda one: one.state == "ready" and one.restarts == 1)
    assert again.out_of_memory is None
    await engine.stop()


def engine_of(paths: Paths, *scripts: Script, watch: Watch | None = None, tight: bool = False) -> Engine:
    build = install(paths.data / "fake", *scripts)
    wanted = replace(plan(gpu_layers=12), devices=(on("CUDA0"),))
    what = replace(launch(MODEL, wanted=wanted), tight=tight)
    return Engine(build, what, paths=paths, limits=FAST, on_change=(watch or Watch()).on_change)


async def failure_of(engine: Engine) -> EngineFailed:
    await engine.start()
    with pytest.raises(EngineFailed) as caught:
        await asyncio.wait_for(engine.wait_ready(), 30)
    return caught.value


async def test_a_load_without_memory_fails_with_the_place(paths: Paths) -> None:
    engine = engine_of(paths, Script(room=0))
    failure = await failure_of(engine)
    assert failure.out_of_memory == engine.snapshot.out_of_memory == "CUDA0"
    assert starts(paths.data / "fake") == 1
    await engine.stop()
    assert engine.snapshot.out_of_memory is None


async def test_a_load_that_is_killed_may_have_taken_all_ram(paths: Paths) -> None:
    engine = engine_of(paths, Script(die_loading=-signal.SIGKILL))
    assert (await failure_of(engine)).out_of_memory == "Host"
    await engine.stop()


async def test_an_engine_that_stays_up_and_can_not_work_says_why(paths: Paths) -> None:
    lines = ("error: Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)",)
    engine = engine_of(paths, Script(load_lines=lines, probe_status=500))
    failure = await failure_of(engine)
    assert (failure.out_of_memory, failure.cause) == ("unknown", "The GPU ran out of memory.")
    await engine.stop()


async def test_out_of_memory_while_serving_is_not_answered_by_a_restart(paths: Paths) -> None:
    watch = Watch()
    engine = engine_of(paths, Script(room_serving=0), watch=watch)
    await engine.start()
    await engine.wait_ready()
    await _break(engine)
    failed = await watch.until(lambda one: one.state == "failed")
    assert failed.out_of_memory == "CUDA0"
    assert starts(paths.data / "fake") == 1
    await engine.stop()


async def test_a_restart_after_another_crash_that_runs_out_is_the_last_one(paths: Paths) -> None:
    watch = Watch()
    engine = engine_of(paths, Script(die_after_tokens=1), Script(room=0), watch=watch)
    await engine.start()
    await engine.wait_ready()
    await _break(engine, stream=True)
    failed = await watch.until(lambda one: one.state == "failed")
    assert failed.out_of_memory == "CUDA0"
    assert starts(paths.data / "fake") == 2
    await engine.stop()


@pytest.mark.parametrize(("kills", "place"), [((3, 3), None), ((3, 4), "Host"), ((None, None), None)])
async def test_a_kill_while_serving_is_memory_only_by_the_kernels_word(
    paths: Paths, kills: tuple[int | None, int | None], place: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch, told = Watch(), iter([kills[0], kills[1], kills[1], kills[1]])
    monkeypatch.setattr(processes, "memory_kills", lambda: next(told))
    engine = engine_of(paths, Script(die_after_tokens=1), Script(), watch=watch)
    await engine.start()
    await engine.wait_ready()
    await _break(engine, stream=True)
    if place is None:
        await watch.until(lambda one: one.state == "ready" and one.restarts == 1)
    else:
        assert (await watch.until(lambda one: one.state == "failed")).out_of_memory == place
    await engine.stop()


async def _break(engine: Engine, *, stream: bool = False) -> None:
    """A chat that ends the engine."""
    endpoint = engine.endpoint
    assert endpoint is not None
    headers = {"Authorization": f"Bearer {endpoint.key}"}
    body = {"messages": [{"role": "user", "content": "Hi"}], "stream": stream}
    connector = aiohttp.UnixConnector(endpoint.socket or "")
    async with aiohttp.ClientSession(endpoint.base_url, connector=connector, headers=headers) as client:
        with pytest.raises(aiohttp.ClientError):
            async with client.post("/v1/chat/completions", json=body) as answer:
                await answer.read()
