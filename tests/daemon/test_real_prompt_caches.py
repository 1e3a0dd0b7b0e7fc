"""Prompts over a restart of the real engines: what comes back, on which builds, and how much sooner."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from appliance.daemon.prompt_caches import PromptCaches
from appliance.daemon.prompt_values import Limits
from appliance.engines import Endpoint, Engine, EngineKind, Launch, session
from appliance.paths import Paths
from appliance.settings import PromptCache, Settings
from tests.daemon.models_of_tests import ref_of
from tests.engines.conftest import paths
from tests.engines.launches import build, plan, without_devices

__all__ = ["paths"]
pytestmark = pytest.mark.timeout(600)

PATIENT = Limits(prove_s=150.0, restore_s=60.0, save_s=60.0)
"""The test's machine may be busy; how long a user waits is not measured here."""
SENTENCES = [
    f"The {number}th traveller came by {what} and told the others a long story about {whom} and {where}."
    for number, (what, whom, where) in enumerate(
        [("ship", "a gardener", "the northern harbour"), ("train", "two sisters", "a bridge of stone"),
         ("horse", "an old clockmaker", "the market in winter"), ("foot", "nobody", "a light in a hut")] * 60
    )
]  # fmt: skip


@dataclass(frozen=True)
class Answer:
    """What a streamed reply told."""

    text: str
    first_s: float
    prompt: int
    cached: int


@dataclass
class Machine:
    """Engines of one kind over one model, one after the other."""

    kind: EngineKind
    model: Path
    paths: Paths
    ctx: int

    def __post_init__(self) -> None:
        settings = Settings(prompt_cache=PromptCache(least_tokens=32))
        self.caches = PromptCaches(self.paths, lambda: settings, limits=PATIENT)

    @asynccontextmanager
    async def engine(self) -> AsyncIterator[tuple[Engine, Endpoint]]:
        """From ready to stopped, with the hooks of a daemon."""
        ref, which = ref_of("ab" * 32), build(self.kind)
        wanted = Launch("small:Q4_1", self.model, plan(ctx=self.ctx))
        engine = Engine(which, await self.caches.prepared(which, wanted, ref), paths=self.paths)
        await engine.start()
        try:
            endpoint = await engine.wait_ready()
            await self.caches.started(engine, ref)
            yield engine, endpoint
            await self.caches.stopping(engine, ref)
        finally:
            await engine.stop()


async def asked(endpoint: Endpoint, prompt: str, **more: Any) -> Answer:
    body = {"prompt": prompt, "max_tokens": 4, "temperature": 0, "stream": True,
            "stream_options": {"include_usage": True}, **more}  # fmt: skip
    begun, first, text = time.perf_counter(), 0.0, ""
    usage: dict[str, Any] = {}
    patient = aiohttp.ClientTimeout(total=None)
    async with (
        session(endpoint) as client,
        client.post("/v1/completions", json=body, timeout=patient) as answer,
    ):
        assert answer.status == 200
        async for line in answer.content:
            if not line.startswith(b"data: {"):
                continue
            chunk = json.loads(line.removeprefix(b"data: "))
            for choice in chunk["choices"]:
                first = first or time.perf_counter() - begun
                text += choice["text"]
            usage = chunk.get("usage") or usage
    return Answer(text, first, usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"])


@pytest.fixture
def files(smollm2_path: Path, gemma3_path: Path) -> dict[str, Path]:
    return {"smollm2": smollm2_path, "gemma3": gemma3_path}


@pytest.mark.parametrize(
    ("kind", "model"), [("llama-server", "smollm2"), ("xllamacpp", "smollm2"), ("xllamacpp", "gemma3")]
)
async def test_a_conversation_goes_on_after_a_restart(
    kind: EngineKind, model: str, files: dict[str, Path], paths: Paths
) -> None:
    machine = Machine(kind, files[model], paths, ctx=512)
    text = " ".join(SENTENCES[:4])
    with without_devices():
        async with machine.engine() as (_, endpoint):
            before = await asked(endpoint, text)
            # what a reply is without a restart, but for the last bits of a batch of another size
            wanted = await asked(endpoint, text + before.text + " And then")
        assert machine.caches.snapshot.files == 1
        assert {path.stat().st_mode & 0o777 for path in paths.prompts.rglob("*.slot")} == {0o600}
        async with machine.engine() as (_, endpoint):
            after = await asked(endpoint, text + before.text + " And then")
            other = await asked(endpoint, SENTENCES[9])
    assert before.cached <= 1
    assert after.prompt == wanted.prompt
    assert after.text == wanted.text
    assert after.prompt - after.cached <= 16
    assert other.cached <= 4


@pytest.mark.slow
async def test_where_a_window_is_not_saved_with_the_prompt_nothing_is_kept(
    gemma3_path: Path, paths: Paths
) -> None:
    """llama.cpp b10434 saves the window of such a model without its checkpoints, and starts anew with it."""
    machine = Machine("llama-server", gemma3_path, paths, ctx=512)
    with without_devices():
        async with machine.engine() as (_, endpoint):
            (note,) = machine.caches.notes()
            assert "used 0 of 32 tokens" in note.detail
            await asked(endpoint, " ".join(SENTENCES[:4]))
    assert machine.caches.snapshot.files == 0


async def test_llama_cpp_python_says_that_it_can_not(smollm2_path: Path, paths: Paths) -> None:
    machine = Machine("llama-cpp-python", smollm2_path, paths, ctx=256)
    async with machine.engine() as (engine, _):
        assert engine.launch.slot_save_path is None
        (note,) = machine.caches.notes()
        assert "no way to save a slot" in note.detail


async def test_a_prompt_in_a_slot_of_its_own_is_in_no_file(smollm2_path: Path, paths: Paths) -> None:
    """The slot that the gateway names is the one that is used, and the one that is not saved."""
    machine = Machine("xllamacpp", smollm2_path, paths, ctx=512)
    ordinary, secret = " ".join(SENTENCES[:2]), "My secret is forty-two. " + " ".join(SENTENCES[20:22])
    async with machine.engine() as (_, endpoint):
        await asked(endpoint, ordinary, id_slot=0)
        with machine.caches.privacy.request(
            endpoint, private=True, slots=2, spreads=False, began=lambda: True
        ) as more:
            assert more == {"id_slot": 1}
            told = await asked(endpoint, secret, **more)
    assert told.cached <= 1
    assert machine.caches.snapshot.files == 1
    async with machine.engine() as (_, endpoint):
        assert (await asked(endpoint, ordinary + " And")).cached >= 32
        assert (await asked(endpoint, secret)).cached <= 4


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize(
    ("kind", "model"), [("llama-server", "smollm2"), ("xllamacpp", "smollm2"), ("xllamacpp", "gemma3")]
)
async def test_four_thousand_tokens_come_back_in_a_quarter_of_the_time(
    kind: EngineKind, model: str, files: dict[str, Path], paths: Paths
) -> None:
    machine = Machine(kind, files[model], paths, ctx=4_608)
    text = " ".join(SENTENCES[: {"smollm2": 172, "gemma3": 170}[model]])
    with without_devices():
        async with machine.engine() as (_, endpoint):
            cold = await asked(endpoint, text)
        async with machine.engine() as (_, endpoint):
            warm = await asked(endpoint, text + cold.text + " And then")
    share = warm.first_s / cold.first_s
    print(f"{kind} {model}: {cold.prompt} tokens, {cold.first_s:.2f} s to the first new one")
    print(f"after a restart {warm.cached} of {warm.prompt} cached, {warm.first_s:.2f} s ({share:.1%})")
    assert cold.prompt >= 3_900
    assert warm.cached >= 0.95 * warm.prompt
    assert warm.first_s <= 0.25 * cold.first_s
