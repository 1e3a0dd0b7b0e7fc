"""Ask the engine itself what a plan needs, without the model's data.

It is started on header-only stubs (each the header's bytes, then a sparse hole) with fit on and explicit
layers, context and slots: fit then changes nothing, but prints its memory table after about half a second,
before any tensor data is read. It is killed there. With fit off the table would come only at the end of a
real load.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from appliance.engines.adapters import Listen, command
from appliance.engines.logparse import LoadReader
from appliance.engines.logs import LogRing
from appliance.engines.process import spawn, unlink
from appliance.engines.stubs import scratch
from appliance.engines.values import Build, Launch
from appliance.errors import EngineFailed, GgufError
from appliance.gguf import StubPart, write_stubs
from appliance.paths import Paths
from appliance.planning import MeasuredRow, Plan

log = logging.getLogger("appliance.engines")

MEASURE_S = 10.0
_OVER = "fit params to free device memory"
"""In the line that ends the dry run, with or without a table: what follows would be a real load."""


async def measure(
    build: Build,
    parts: Sequence[StubPart],
    plan: Plan,
    *,
    paths: Paths,
    embedding: bool = False,
    mmproj: StubPart | None = None,
    draft: Sequence[StubPart] = (),
    timeout_s: float = MEASURE_S,
) -> Mapping[str, MeasuredRow] | None:
    """Bytes per device and for `Host` that `plan` takes in `build`, cut off to whole MiB by the engine.

    `parts` are the files of the model in order. None when it can't be measured: llama-cpp-python has no such
    dry run, nor has a split by tensors; the engine ended, or it took longer than `timeout_s`. Raises nothing.
    """
    if build.kind == "llama-cpp-python" or not build.usable or plan.split == "tensor":
        return None
    try:
        with scratch(paths) as folder:
            model = await asyncio.to_thread(write_stubs, parts, folder)
            seeing = await _extra([mmproj] if mmproj is not None and plan.mmproj else [], folder, "mmproj")
            helper = await _extra(draft if plan.draft else (), folder, "draft")
            launch = Launch("measure", model, plan, embedding, mmproj=seeing, draft=helper)
            paths.runtime.mkdir(parents=True, exist_ok=True, mode=0o700)
            listen = Listen(str(paths.runtime / f"measure-{secrets.token_hex(4)}.sock"), 0)
            return await _ask(build, launch, listen, timeout_s)
    except (OSError, GgufError, EngineFailed) as error:
        log.warning("The plan can't be measured: %s", error)
        return None


async def _extra(parts: Sequence[StubPart], folder: Path, stem: str) -> Path | None:
    return await asyncio.to_thread(write_stubs, parts, folder, stem) if parts else None


class _Watch:
    """Reads the log in the pump's thread and tells the event loop when the table is there, or won't come."""

    def __init__(self) -> None:
        self.reader = LoadReader()
        self.over = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def feed(self, line: str) -> None:
        self.reader.feed(line)
        if self.reader.table_done or _OVER in line:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self.over.set)


async def _ask(
    build: Build, launch: Launch, listen: Listen, timeout_s: float
) -> Mapping[str, MeasuredRow] | None:
    watch, marker, key = _Watch(), secrets.token_hex(16), secrets.token_hex(32)
    what = await command(build, launch, listen, key=key, marker=marker, fit=True, warmup=False)
    child = await spawn(what, marker=marker, ring=LogRing(200), on_line=watch.feed, secret=key)
    ended = [asyncio.create_task(child.wait()), asyncio.create_task(watch.over.wait())]
    try:
        _, waiting = await asyncio.wait(ended, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if len(waiting) == len(ended):
            log.warning("%s printed no memory table within %.1f s", build.build, timeout_s)
    finally:
        child.kill()
        for task in ended:
            task.cancel()
        await asyncio.gather(*ended, return_exceptions=True)
        await child.end(1.0)
        unlink(listen.socket)
    return dict(watch.reader.rows) if watch.reader.table_done else None
