"""One remote endpoint: watches it, says what it offers, speaks its language. It sends no prompt itself."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections.abc import Callable, Mapping
from typing import Any

import aiohttp

from appliance.errors import RemoteError
from appliance.remotes import address, probe
from appliance.remotes.breaker import FAILURES, Breaker
from appliance.remotes.translate import translate
from appliance.remotes.types import Offer, Outcome, RemoteSnapshot, UpState
from appliance.settings import RemoteSettings
from appliance.text import clean_line

log = logging.getLogger("appliance.remotes")

INTERVAL_S = 10.0
LONGEST_S = 60.0
"""Between looks while it is down: 2, 4, 8 ... seconds up to this."""
GAP_S = 1.0
"""Never two looks of the loop within this time, whatever happens."""
JITTER = 0.2


class Remote:
    """One endpoint. `start` keeps its snapshot fresh; `probe` looks once, with or without that.

    `env` is read for the key at each use, so that the key is never kept. `on_change` hears of each snapshot
    whose state, models or breaker differ from the one before; it must not raise.
    """

    def __init__(
        self,
        settings: RemoteSettings,
        *,
        env: Mapping[str, str] | None = None,
        session: aiohttp.ClientSession | None = None,
        interval_s: float = INTERVAL_S,
        breaker: Breaker | None = None,
        on_change: Callable[[RemoteSnapshot], None] | None = None,
    ) -> None:
        self._settings = settings
        self._env = os.environ if env is None else env
        self._session = session
        self._owns_session = session is None
        self._interval_s = interval_s
        self._breaker = breaker or Breaker()
        self._on_change = on_change
        self._seen: probe.Seen | None = None
        self._checked_at: float | None = None
        self._look: asyncio.Task[None] | None = None
        self._loop: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()

    @property
    def name(self) -> str:
        """Its name in the settings."""
        return self._settings.name

    @property
    def base_url(self) -> str:
        """What paths like `/chat/completions` are appended to: with `/v1`, without a slash at the end."""
        return address.base(self._settings.url)

    @property
    def state(self) -> UpState:
        """Whether the last look found it up; unknown before the first."""
        if self._seen is None:
            return "unknown"
        return "up" if self._seen.error is None else "down"

    @property
    def snapshot(self) -> RemoteSnapshot:
        """What is known now."""
        seen = self._seen or probe.Seen()
        return RemoteSnapshot(
            name=self.name,
            kind=self._settings.kind,
            url=self.base_url,
            state=self.state,
            models=seen.models or (),
            latency_ms=seen.latency_ms,
            waiting=seen.waiting,
            running=seen.running,
            version=seen.version,
            checked_at=self._checked_at,
            error=seen.error,
            breaker=self._breaker.state,
            notes=self._notes(),
        )

    def _notes(self) -> tuple[str, ...]:
        variable = self._settings.api_key_env
        missing = (
            f"The variable {variable} isn't set, so no key is sent." if variable and not self._key() else None
        )
        return (*address.notes(self._settings.url), *((missing,) if missing else ()))

    # --- watching

    async def start(self) -> None:
        """Look now and then from here on."""
        if self._loop is None:
            self._loop = asyncio.create_task(self._watch(), name=f"remote {self.name}")

    async def stop(self) -> None:
        """End the looks and close the connections. Safe to call twice, and without start."""
        tasks = [task for task in (self._loop, self._look) if task is not None]
        self._loop = self._look = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._owns_session and self._session is not None:
            await self._session.close()
            self._session = None

    async def probe(self) -> RemoteSnapshot:
        """Look once. Calls at the same time share one look."""
        if self._look is None or self._look.done():
            self._look = asyncio.create_task(self._look_once())
        look = self._look
        await asyncio.wait([look])  # a cancelled caller leaves the look to the others
        if not look.cancelled():
            look.result()
        return self.snapshot

    async def _look_once(self) -> None:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=4), cookie_jar=aiohttp.DummyCookieJar()
            )
        before = self.snapshot
        url, kind = self._settings.url, self._settings.kind
        seen = await probe.look(self._session, url, kind, self._authorization())
        if seen.error is not None and self._seen is not None and seen.models is None:
            # What it serves is still the best guess of what it will serve when it is back.
            seen = probe.Seen(seen.error, models=self._seen.models, retry_after_s=seen.retry_after_s)
        self._seen, self._checked_at = seen, time.time()
        self._tell(before)

    def _tell(self, before: RemoteSnapshot) -> None:
        now = self.snapshot
        if now.state != before.state:
            log.info("remote %s is %s%s", self.name, now.state, f": {now.error}" if now.error else "")
        if self._on_change and (now.state, now.models, now.breaker) != (
            before.state,
            before.models,
            before.breaker,
        ):
            self._on_change(now)

    async def _watch(self) -> None:
        failed = 0
        while True:
            self._wake.clear()
            await self.probe()
            failed = failed + 1 if self.state == "down" else 0
            wait = min(2.0**failed, LONGEST_S) if failed else self._interval_s
            asked = self._seen.retry_after_s if self._seen else None
            wait = max(wait, min(asked or 0.0, LONGEST_S)) * (
                1 + random.SystemRandom().uniform(-JITTER, JITTER)
            )
            gap = min(GAP_S, wait)
            await asyncio.sleep(gap)
            try:
                async with asyncio.timeout(wait - gap):
                    await self._wake.wait()
            except TimeoutError:
                continue

    # --- what it offers

    def model_for(self, local_id: str) -> str | None:
        """Its name for a local model: the mapped one, or the same name if it serves that; else None."""
        names = (local_id, local_id.partition(":")[0])  # `id:QUANT`, then `id`
        mapped = next((self._settings.models[name] for name in names if name in self._settings.models), None)
        if mapped:
            return mapped
        served = {model.id for model in self._seen.models or ()} if self._seen else set()
        return next((name for name in names if name in served), None)

    def offer(self, local_id: str) -> Offer:
        """What it can do for this model now. Answers at once."""
        model = self.model_for(local_id)
        served = self._seen.models if self._seen else None
        entry = next((one for one in served or () if one.id == model), None)
        has = model is not None and (entry is not None or served is None or self._settings.kind == "openai")
        up = self.state == "up" and self._breaker.allows
        return Offer(self.name, up, has, entry.max_model_len if entry else None, self._why_not(model, has))

    def _why_not(self, model: str | None, has: bool) -> str:
        if self._seen is None:
            return "not looked at yet"
        if self._seen.error is not None:
            return self._seen.error
        if not self._breaker.allows:
            back = self._breaker.reopens_in_s
            return "it failed" + (f"; tried again in {back:.0f} s" if back else "")
        if model is None:
            return "this model isn't mapped to one of its models"
        return "" if has else f"it doesn't serve {clean_line(model, 100)}"

    # --- sending to it (the gateway does)

    def translate(self, path: str, body: dict[str, Any], *, local_id: str) -> dict[str, Any]:
        """The body in its words, with its model name.

        Raises Untranslatable for a field that it can't honour, RemoteError when it has no such model.
        """
        model = self.model_for(local_id)
        if model is None:
            raise RemoteError(
                f"The remote {self.name} has no model for {local_id}.",
                hint=f"`appliance remote add {self.name} ... --model {local_id}=ITS-NAME` maps one.",
            )
        same = same_model(local_id, model)
        return translate(path, body, model=model, kind=self._settings.kind, same_tokenizer=same)

    def headers(self) -> dict[str, str]:
        """The headers of one request that is about to be sent, with the key.

        While the breaker is half-open that request is its trial, so end each with `report`.
        """
        self._breaker.begin()
        return self._authorization()

    def report(self, outcome: Outcome, *, retry_after_s: float | None = None) -> None:
        """How a request ended; feeds the breaker. After a failure the remote is looked at soon."""
        before = self.snapshot
        self._breaker.report(outcome, retry_after_s=retry_after_s)
        if outcome in FAILURES:
            self._wake.set()
        self._tell(before)

    def _authorization(self) -> dict[str, str]:
        key = self._key()
        return {"Authorization": f"Bearer {key}"} if key else {}

    def _key(self) -> str | None:
        """The key as it is in the environment now; one that no header can carry counts as none."""
        variable = self._settings.api_key_env
        key = self._env.get(variable, "").strip() if variable else ""
        return key if key and key.isprintable() else None


def same_model(local_id: str, remote_model: str) -> bool:
    """Whether the names say the same model (`qwen3-8b`, `Qwen/Qwen3-8B-AWQ`), so that token ids agree."""
    return remote_model.rpartition("/")[2].lower().startswith(local_id.partition(":")[0].lower())
