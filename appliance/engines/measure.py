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
from appliance.engines.breakdown import Breakdown
from appliance.engines.logs import LogRing
from appliance.engines.process import spawn, unlink
from appliance.engines.refusals import Refusal, Refused
from appliance.engines.stubs import scratch
from appliance.engines.values import Build, Launch
from appliance.errors import EngineFailed, GgufError
from appliance.gguf import StubPart, write_stubs
from appliance.paths import Paths
from appliance.planning import MeasuredRow, Plan, Pooling

log = logging.getLogger("appliance.engines")

MEASURE_S = 10.0


async def measure(
    build: Build,
    parts: Sequence[StubPart],
    plan: Plan,
    *,
    paths: Paths,
    embedding: bool = False,
    reranking: bool = False,
    pooling: Pooling | None = None,
    draft: Sequence[StubPart] = (),
    timeout_s: float = MEASURE_S,
) -> Mapping[str, MeasuredRow] | None:
    """Bytes per device and for `Host` that `plan` takes in `build`, cut off to whole MiB by the engine.

    `parts` are the files of the model in order, `draft` those of its draft model, beside which it keeps more
    results. What draft model, projector and adapters take themselves is not
    among the figures.

    None when it can't be measured: llama-cpp-python has no such dry run, nor has a split by tensors; the
    engine ended without a word on the model, or it took longer than `timeout_s`. Raises Refused when the
    engine says that it takes no such model, or not with these settings; nothing else.
    """
    if build.kind == "llama-cpp-python" or not build.usable or plan.split == "tensor":
        return None
    try:
        with scratch(paths) as folder:
            model = await _written(parts, folder, "model")
            helper = await _written(draft, folder, "draft") if draft and plan.draft else None
            launch = Launch(
                "measure", model, plan, embedding, draft=helper, reranking=reranking, pooling=pooling
            )
            paths.runtime.mkdir(parents=True, exist_ok=True, mode=0o700)
            listen = Listen(str(paths.runtime / f"measure-{secrets.token_hex(4)}.sock"), 0)
            return await _ask(build, launch, listen, timeout_s)
    except Refused:
        raise
    except (OSError, GgufError, EngineFailed) as error:
        log.warning("The plan can't be measured: %s", error)
        return None


async def _written(parts: Sequence[StubPart], folder: Path, stem: str) -> Path:
    """The stubs. A cancel waits for them, since the folder is removed next."""
    writing = asyncio.ensure_future(asyncio.to_thread(write_stubs, parts, folder, stem))
    try:
        return await asyncio.shield(writing)
    finally:
        while not writing.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({writing})


class _Watch:
    """Reads the log in the pump's thread and tells the event loop when the table is there, or won't come."""

    def __init__(self, *, drafted: bool) -> None:
        self.table = Breakdown(drafted=drafted)
        self.refusal = Refusal()
        self.over = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def feed(self, line: str) -> None:
        self.refusal.feed(line)
        self.table.feed(line)
        if self.table.over:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self.over.set)


async def _ask(
    build: Build, launch: Launch, listen: Listen, timeout_s: float
) -> Mapping[str, MeasuredRow] | None:
    watch, marker, key = (
        _Watch(drafted=launch.draft is not None),
        secrets.token_hex(16),
        secrets.token_hex(32),
    )
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
    rows, refused = watch.table.rows, watch.refusal.sentence
    if rows is None and refused is not None:
        raise Refused(refused)
    return rows
