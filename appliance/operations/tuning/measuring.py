"""One start of the real engine with some settings, and the speeds that it reaches.

Prompts are fixed token ids, so the same work is done each time; nothing is taken from a cache. The engine's
own timings are read: its clock excludes what this process does.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from appliance.engines import Build, Engine, Launch, session
from appliance.errors import EngineError
from appliance.paths import Paths
from appliance.planning import Plan
from appliance.text import clean_line

if TYPE_CHECKING:
    import aiohttp

_REQUEST_S = 600.0
_PREFILL_S, _DECODE_S = 8.0, 6.0
"""What one request should take at most of each; a slower machine gets shorter ones."""
_START_S = 40.0
"""What all requests of one start should take at most together."""
_LEAST_PROMPT, _LEAST_DECODE = 64, 8
_MANY_PROMPT = 16
_LOW_IDS, _HIGH_IDS = 256, 64
"""Ids at both ends of a vocabulary are bytes and control tokens."""


@dataclass(frozen=True, slots=True)
class Work:
    """What one start is asked to do."""

    prompt: int = 512
    """Tokens."""
    decode: int = 64
    repeats: int = 3
    many_repeats: int = 2

    def within(self, pilot: Speeds) -> Work:
        """As much of it as a machine of this speed does in a bearable time."""
        prompt = min(self.prompt, max(_LEAST_PROMPT, int(pilot.prefill * _PREFILL_S)))
        decode = min(self.decode, max(_LEAST_DECODE, int(pilot.decode * _DECODE_S)))
        together_s = self.many_repeats * decode / pilot.decode
        times = (_START_S - together_s) / (prompt / pilot.prefill + decode / pilot.decode)
        return replace(
            self,
            prompt=prompt,
            decode=decode,
            repeats=max(1, min(self.repeats, int(times))),
            many_repeats=self.many_repeats if times >= 1 else min(1, self.many_repeats),
        )


@dataclass(frozen=True, slots=True)
class Speeds:
    """Tokens per second: medians of one start."""

    prefill: float
    decode: float
    """Of one stream, with the prompt before it."""
    many: float | None = None
    """Of all slots together; None with one slot."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What is measured, but for the settings."""

    build: Build
    plan: Plan
    model_id: str
    model: Path
    n_vocab: int
    paths: Paths
    prove: Callable[[], Awaitable[None]] | None = None
    """Awaited before each start: the model's bytes may be served. Raises NotVerified, ModelMissing."""


async def measured(bench: Bench, plan: Plan, work: Work) -> Speeds:
    """The speeds of one start with `plan`.

    Raises EngineError when the engine does not start, or answers something else than tokens.
    """
    async with running(bench, plan) as client:
        await _first(client, bench, work)
        found = [await alone(client, bench, work.prompt, work.decode, n) for n in range(1, work.repeats + 1)]
        many = [
            await together(client, bench, plan.parallel, work.decode, n) for n in range(work.many_repeats)
        ]
    return Speeds(
        statistics.median(one.prefill for one in found),
        statistics.median(one.decode for one in found),
        statistics.median(many) if many and plan.parallel > 1 else None,
    )


async def pilot(bench: Bench, plan: Plan, work: Work) -> Speeds:
    """How fast this is at all. Raises as `measured`."""
    async with running(bench, plan) as client:
        await _first(client, bench, work)
        return await _first(client, bench, work)


def prompt_of(n_tokens: int, n_vocab: int, seed: int) -> list[int]:
    """Token ids that look like no text: fixed for each seed, spread over the vocabulary."""
    low = min(_LOW_IDS, n_vocab // 4)
    span = max(1, n_vocab - low - min(_HIGH_IDS, n_vocab // 4))
    state, ids = 12_345 + 7_919 * seed, list[int]()
    for _ in range(n_tokens):
        state = (state * 1_103_515_245 + 12_345) % (1 << 31)
        ids.append(low + (state >> 8) % span)
    return ids


@contextlib.asynccontextmanager
async def running(bench: Bench, plan: Plan) -> AsyncIterator[aiohttp.ClientSession]:
    """A client of an engine that lives as long as this is held."""
    launch = Launch(bench.model_id, bench.model, plan)
    engine = Engine(bench.build, launch, paths=bench.paths, before_start=bench.prove)
    try:
        await engine.start()
        endpoint = await engine.wait_ready()
        async with session(endpoint) as client:
            yield client
    finally:
        await engine.stop()


async def _first(client: aiohttp.ClientSession, bench: Bench, work: Work) -> Speeds:
    """A short request, which warms caches up."""
    return await alone(client, bench, min(work.prompt, _LEAST_PROMPT), min(work.decode, _LEAST_DECODE), 0)


async def alone(client: aiohttp.ClientSession, bench: Bench, prompt: int, decode: int, seed: int) -> Speeds:
    """One request: so many tokens of prompt, so many after it. Raises EngineError."""
    timings = await _completion(client, prompt_of(prompt, bench.n_vocab, seed), decode)
    return Speeds(timings["prompt_per_second"], timings["predicted_per_second"])


async def together(
    client: aiohttp.ClientSession, bench: Bench, streams: int, decode: int, seed: int
) -> float:
    """Tokens per second of all streams, by the clock on the wall; 0 for one. Raises EngineError."""
    if streams < 2:
        return 0.0
    prompts = [prompt_of(_MANY_PROMPT, bench.n_vocab, 100 + seed * streams + n) for n in range(streams)]
    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(_completion(client, prompt, decode)) for prompt in prompts]
    took = time.perf_counter() - began
    return sum(task.result()["predicted_n"] for task in running) / took


async def _completion(client: aiohttp.ClientSession, prompt: Sequence[int], decode: int) -> dict[str, float]:
    """The timings of one reply."""
    import aiohttp

    body = {
        "prompt": list(prompt), "n_predict": decode, "cache_prompt": False, "ignore_eos": True,
        "temperature": 0.0, "stream": False,
    }  # fmt: skip
    try:
        async with client.post(
            "/completion", json=body, timeout=aiohttp.ClientTimeout(total=_REQUEST_S)
        ) as answer:
            document = await answer.json(content_type=None)
            if answer.status != 200:
                raise _no_tokens(f"it answered {answer.status}: {document}")
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise _no_tokens(f"{type(error).__name__}: {error}") from None
    return _timings(document)


def _timings(document: Any) -> dict[str, float]:
    names = ("prompt_per_second", "predicted_per_second", "predicted_n")
    found = document.get("timings") if isinstance(document, dict) else None
    values = [found.get(name) for name in names] if isinstance(found, dict) else [None]
    good = [float(value) for value in values if isinstance(value, int | float) and 0 < value < 1e12]
    if len(good) < len(names):
        raise _no_tokens("its reply has no timings")
    return dict(zip(names, good, strict=True))


def _no_tokens(why: str) -> EngineError:
    return EngineError(
        "The engine can't be measured.",
        cause=clean_line(why, 300),
        hint="`appliance logs` shows what it said; another engine (--engine) may do better.",
    )
