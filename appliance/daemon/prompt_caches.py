"""Nothing is worked on twice: prompts are saved before an engine stops, and given back to the next one.

`started` and `stopping` are called around an engine's life and never raise: without a saved prompt, an engine
is only slower. Both have an end.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from weakref import WeakKeyDictionary

import aiohttp

from appliance.catalog import ModelRef
from appliance.daemon.prompt_values import Life, Limits, PromptCacheSnapshot, key_for, told
from appliance.engines import Build, Engine, Launch, session, slots
from appliance.operations.machine.survey import Note
from appliance.paths import Paths
from appliance.settings import Settings

__all__ = ["PromptCacheSnapshot", "PromptCaches"]
log = logging.getLogger("appliance.prompts")
SWEEP_S = 3_600.0
_LIMITS = Limits()
_TODO = "Another engine or build may do it: `appliance engines list`, docs/engines.md."


class PromptCaches:
    """Saved prompts of all engines of a daemon. All methods belong to its event loop."""

    def __init__(
        self,
        paths: Paths,
        settings: Callable[[], Settings],
        *,
        clock: Callable[[], float] = time.time,
        limits: Limits = _LIMITS,
    ) -> None:
        self._settings, self._clock, self._times = settings, clock, limits
        self._shelf = slots.Shelf(paths.prompts, clock=clock)
        self._proofs = slots.Proofs(paths.prompt_proofs, clock=clock)
        self._lives: WeakKeyDictionary[Engine, Life] = WeakKeyDictionary()
        self._folders: set[str] = set()
        """Engines may have been told to write there."""
        self._snapshot = PromptCacheSnapshot(enabled=True)
        self._sweeper: asyncio.Task[None] | None = None
        self.privacy = slots.Privacy()
        """Which slots hold prompts that must not be written; the gateway tells it."""

    @property
    def snapshot(self) -> PromptCacheSnapshot:
        return self._snapshot

    async def begin(self) -> None:
        """Remove what may not lie on the disk any more, everything when the setting is off, now and every
        hour. Never raises.
        """
        await self._sweep()
        if self._sweeper is None:
            self._sweeper = asyncio.create_task(self._sweep_on(), name="prompt caches")

    async def apply(self) -> None:
        """The settings have changed: keep to them now. Never raises."""
        await self._sweep()

    async def close(self) -> None:
        """Stop looking after the disk."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
            self._sweeper = None

    async def prepared(self, build: Build, launch: Launch, ref: ModelRef) -> Launch:
        """The launch with a folder for saved prompts, and with a bound for the engine's own RAM cache.

        Never raises: without a folder nothing is saved.
        """
        launch = replace(launch, cache_ram_mib=slots.cache_ram_mib(launch.plan))
        wanted = self._settings().prompt_cache.enabled and slots.converses(launch, ref.model.use)
        if not wanted or slots.why_never(build, launch) is not None:
            return launch
        try:
            key = (await asyncio.to_thread(key_for, build, launch, ref)).folder
            self._folders.add(key)
            return replace(launch, slot_save_path=await asyncio.to_thread(self._shelf.prepare, key))
        except OSError as error:
            log.warning("prompts can't be saved: %s", error.strerror)
            return launch

    async def started(self, engine: Engine, ref: ModelRef) -> None:
        """An engine is ready and has no request yet: prove once that it can, then give prompts back."""
        endpoint, launch = engine.endpoint, engine.launch
        if endpoint is None or not self._settings().prompt_cache.enabled:
            return
        if not slots.converses(launch, ref.model.use):
            return
        key = await asyncio.to_thread(key_for, engine.build, launch, ref)
        life = self._lives[engine] = Life(key, endpoint, since=self._clock())
        life.why_not = slots.why_never(engine.build, launch)
        if life.why_not is None and launch.slot_save_path is None:
            life.why_not = "there is no folder to save them in"
        if life.why_not is not None:
            return
        async with told(f"{ref.ref}: prompts can't be given back"), session(endpoint) as client:
            await self._give(client, life, ref.ref)
        await self._count()

    async def stopping(self, engine: Engine, ref: ModelRef) -> None:
        """A ready engine is about to be stopped: save what its slots hold."""
        life, endpoint = self._lives.get(engine), engine.endpoint
        if life is None or endpoint is None or life.why_not is not None:
            return
        if not self._settings().prompt_cache.enabled:
            return
        if self.privacy.forbids_all(endpoint):
            log.info("%s: prompts are not saved: a request that forbids it may be among them", ref.ref)
            return
        done = slots.Saved()
        async with told(f"{ref.ref}: prompts can't be saved"), session(endpoint) as client:
            async with asyncio.timeout(self._times.save_s):
                await self._save(client, engine, life, done)
        self._lives.pop(engine, None)
        await self._sweep()
        for one in done.skipped:
            log.info("%s: slot %d is not saved: %s", ref.ref, one.slot, one.why)
        if done.entries:
            tokens, size = sum(e.tokens for e in done.entries), sum(e.n_bytes for e in done.entries)
            log.info("%s: %d prompts saved, %d tokens, %d bytes", ref.ref, len(done.entries), tokens, size)

    def notes(self) -> tuple[Note, ...]:
        """Of engines that run now and whose prompts can't be kept: why."""
        found = [
            (engine.launch.model_id, life.why_not, life.since)
            for engine, life in self._lives.items()
            if life.why_not is not None and engine.endpoint is not None
        ]
        return tuple(
            Note("prompts_not_saved", f"{model}: its prompts don't outlive a restart: {why}", _TODO, since)
            for model, why, since in sorted(found)
        )

    async def clear(self) -> slots.Removed:
        """Remove every saved prompt; what is in an engine now is not saved later either."""
        for engine in list(self._lives):
            if engine.endpoint is not None:
                self.privacy.forbid_all(engine.endpoint)
        done = await asyncio.to_thread(self._shelf.clear)
        await self._count()
        return done

    async def prune(self, private: bool) -> slots.Removed:
        """`models prune --private`."""
        return await self.clear() if private else slots.Removed()

    async def _give(self, client: aiohttp.ClientSession, life: Life, ref: str) -> None:
        says = await slots.said(client)
        folder, name = life.key.folder, self._shelf.new_name()
        file, limit_s = self._shelf.folder(folder) / name, self._times.prove_s
        try:
            life.why_not = await slots.why_unproven(
                client, self._proofs, life.key.kind, file, says.ctx, limit_s
            )
        finally:
            self._shelf.discard(folder, name)
        if life.why_not is not None:
            log.warning("%s: its prompts don't outlive a restart: %s", ref, life.why_not)
            return
        await self._sweep()
        try:
            async with asyncio.timeout(limit := self._times.restore_s):
                await slots.give_back(client, self._shelf, life.key.folder, says, limit, life.given)
        finally:
            for why in life.given.refused:
                log.warning("%s: a saved prompt was not given back: %s", ref, why)
            if life.given.slots:
                n = len(life.given.slots)
                log.info("%s: %d prompts given back, %d tokens", ref, n, life.given.tokens)

    async def _save(
        self, client: aiohttp.ClientSession, engine: Engine, life: Life, done: slots.Saved
    ) -> None:
        endpoint, limits = engine.endpoint, self._limits()
        if endpoint is None:
            return
        await slots.save_all(
            client,
            self._shelf,
            life.key.folder,
            await slots.said(client),
            limits=limits,
            private=self.privacy.slots(endpoint),
            given=life.given if endpoint == life.endpoint else slots.Given(),
            bytes_per_token=slots.bytes_per_token(engine.launch.plan),
            timeout_s=self._times.save_s,
            into=done,
        )

    def _limits(self) -> slots.Limits:
        wanted = self._settings().prompt_cache
        return slots.Limits(wanted.disk, wanted.age, wanted.least_tokens, self._times.margin)

    async def _sweep(self) -> None:
        limits, enabled = self._limits(), self._settings().prompt_cache.enabled
        async with told("saved prompts can't be cleared up"):
            if not enabled:
                await asyncio.to_thread(self._shelf.clear)
            await asyncio.to_thread(
                self._shelf.sweep, limits.budget, limits.age_s, in_use=frozenset(self._folders)
            )
        await self._count()

    async def _sweep_on(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            await self._sweep()

    async def _count(self) -> None:
        entries = await asyncio.to_thread(self._shelf.entries)
        self._snapshot = PromptCacheSnapshot(
            enabled=self._settings().prompt_cache.enabled,
            files=len(entries),
            n_bytes=sum(entry.n_bytes for entry in entries),
            tokens=sum(entry.tokens for entry in entries),
        )
