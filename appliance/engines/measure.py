"""Ask the engine itself what a plan needs, without the model's data.

It is started on a header-only stub (the header's bytes, then a sparse hole) with fit on and explicit layers,
context and slots: fit then changes nothing, but prints its memory table after about half a second, before any
tensor data is read. It is killed there. With fit off the table would come only at the end of a real load.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from appliance.engines.adapters import Listen, command
from appliance.engines.logparse import LoadReader
from appliance.engines.logs import LogRing
from appliance.engines.process import spawn, unlink
from appliance.engines.values import Build, Launch
from appliance.errors import EngineFailed, GgufError
from appliance.gguf import write_stub
from appliance.paths import Paths
from appliance.planning import MeasuredRow, Plan

log = logging.getLogger("appliance.engines")

MEASURE_S = 10.0
_POLL_S = 0.02


async def measure(
    build: Build,
    model: Path | bytes,
    plan: Plan,
    *,
    paths: Paths,
    size: int | None = None,
    embedding: bool = False,
    timeout_s: float = MEASURE_S,
) -> Mapping[str, MeasuredRow] | None:
    """Bytes per device and for `Host` that `plan` takes in `build`, cut off to whole MiB by the engine.

    `model` is a file, or the first bytes of one that is not here yet, with `size` its full size. None when
    it can't be measured: llama-cpp-python has no such dry run, the engine ended, or it took too long.
    Raises nothing.
    """
    if build.kind == "llama-cpp-python" or not build.usable:
        return None
    word = secrets.token_hex(4)
    stub = paths.cache / f"stub-{word}.gguf"
    try:
        paths.cache.mkdir(parents=True, exist_ok=True)
        paths.runtime.mkdir(parents=True, exist_ok=True, mode=0o700)
        await asyncio.to_thread(write_stub, model, stub, file_size=size)
        launch = Launch("measure", stub, plan, embedding)
        return await _ask(build, launch, Listen(str(paths.runtime / f"measure-{word}.sock"), 0), timeout_s)
    except (OSError, GgufError, EngineFailed) as error:
        log.warning("The plan can't be measured: %s", error)
        return None
    finally:
        unlink(stub)


async def _ask(
    build: Build, launch: Launch, listen: Listen, timeout_s: float
) -> Mapping[str, MeasuredRow] | None:
    reader, ring, marker = LoadReader(), LogRing(200), secrets.token_hex(16)
    key = secrets.token_hex(32)
    what = await command(build, launch, listen, key=key, marker=marker, fit=True, warmup=False)
    child = await spawn(what, marker=marker, ring=ring, on_line=reader.feed, secret=key)
    exited = asyncio.create_task(child.wait())
    try:
        async with asyncio.timeout(timeout_s):
            while not reader.table_done and not exited.done():
                await asyncio.wait({exited}, timeout=_POLL_S)
    except TimeoutError:
        log.warning("%s printed no memory table within %.0f s", build.build, timeout_s)
    finally:
        child.kill()
        exited.cancel()
        await asyncio.gather(exited, return_exceptions=True)
        await child.end(1.0)
        unlink(listen.socket)
    return {name: replace(row) for name, row in reader.rows.items()} if reader.table_done else None
