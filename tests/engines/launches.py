"""Plans and builds for the engine tests, written down instead of searched: small, and the same everywhere."""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from appliance.engines import Build, EngineKind, EngineSnapshot, Launch
from appliance.paths import Paths
from appliance.planning import MemoryPlan, Plan
from tests.engines.binaries import llama_server

MODEL_ID = "smollm2-135m-instruct:Q4_1"


def plan(*, gpu_layers: int = 0, ctx: int = 512, parallel: int = 2) -> Plan:
    """A plan for SmolLM2 135M, as the planner would write it."""
    flags = ("-ngl", str(gpu_layers), "-c", str(ctx * parallel), "-np", str(parallel), "-fit", "off",
             "-ctk", "f16", "-ctv", "f16", "-ub", "512", "-t", "2")  # fmt: skip
    host = MemoryPlan("Host", None, None, 0, 0, 0, 0, 0, None)
    return Plan(
        model=MODEL_ID, arch="llama", engine_build="test", n_layer=30, gpu_layers=gpu_layers, ctx=ctx,
        parallel=parallel, kv_type="f16", flash_attn="auto", n_ubatch=512, threads=2, devices=(), host=host,
        fits=True, measured=False, reasons=(), flags=flags,
    )  # fmt: skip


def launch(model: Path, *, embedding: bool = False, wanted: Plan | None = None) -> Launch:
    return Launch(MODEL_ID, model, wanted or plan(), embedding, pooling="mean" if embedding else None)


def build(kind: EngineKind) -> Build:
    """The real build of a kind; llama-cpp-python skips where the extra is not installed."""
    if kind == "llama-server":
        return Build(kind, str(llama_server()), "10434", "llama-server 10434")
    distribution = kind.replace("-", "_")
    try:
        version = importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"the extra {kind} is not installed: pip install 'llama-appliance[{kind}]'")
    return Build(kind, None, version, f"{kind} {version}")


def paths_in(folder: Path) -> Paths:
    """All folders under one; the runtime folder has a short name, since socket paths are limited."""
    return Paths(folder / "config", folder / "data", folder / "state", folder / "cache", folder / "r").make()


@contextmanager
def without_devices() -> Iterator[None]:
    """Hide the Vulkan device, so that the Vulkan build runs on the CPU alone."""
    before = os.environ.get("GGML_VK_VISIBLE_DEVICES")
    os.environ["GGML_VK_VISIBLE_DEVICES"] = ""
    try:
        yield
    finally:
        if before is None:
            del os.environ["GGML_VK_VISIBLE_DEVICES"]
        else:
            os.environ["GGML_VK_VISIBLE_DEVICES"] = before


class Watch:
    """Collects the snapshots of an engine."""

    def __init__(self) -> None:
        self.seen: list[EngineSnapshot] = []
        self._waiting: tuple[Callable[[EngineSnapshot], bool], asyncio.Future[EngineSnapshot]] | None = None

    def on_change(self, snapshot: EngineSnapshot) -> None:
        self.seen.append(snapshot)
        self._look(snapshot)

    async def until(
        self, condition: Callable[[EngineSnapshot], bool], limit_s: float = 60.0
    ) -> EngineSnapshot:
        """The first snapshot that fulfils `condition`, from the next change on, or the newest."""
        loop = asyncio.get_running_loop()
        found: asyncio.Future[EngineSnapshot] = loop.create_future()
        self._waiting = condition, found
        if self.seen:
            self._look(self.seen[-1])
        return await asyncio.wait_for(found, limit_s)

    def _look(self, snapshot: EngineSnapshot) -> None:
        if self._waiting is not None:
            condition, found = self._waiting
            if condition(snapshot) and not found.done():
                found.set_result(snapshot)

    def states(self) -> list[str]:
        """States in order, repetitions left out."""
        states: list[str] = []
        for snapshot in self.seen:
            if not states or states[-1] != snapshot.state:
                states.append(snapshot.state)
        return states
