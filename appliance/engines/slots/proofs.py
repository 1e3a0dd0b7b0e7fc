"""`prompt_proofs.json`: on which engines saved prompts were shown to come back. No text of a request."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import aiohttp

from appliance.engines.slots.proof import Proof, prove
from appliance.store import layout

log = logging.getLogger("appliance.prompts")
_MOST = 128
_TRIES = 3
"""A proof that failed is tried again at later loads, so many times in all, and anew after `_FORGOTTEN_S`:
a machine may have been busy.
"""
_FORGOTTEN_S = 86_400.0
_WHY = 200
BEGUN = "the engine ended while it was tried"
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Remembered:
    """What is known of one kind of engine."""

    works: bool
    why: str
    tries: int
    at: float
    """Unix seconds."""
    final: bool = False
    """Another try would end the same way."""

    @property
    def settled(self) -> bool:
        """It need not be tried again now."""
        return self.works or self.final or self.tries >= _TRIES


class Proofs:
    """Reads and writes a small file: call it in a thread. A broken file is begun anew."""

    def __init__(self, file: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._file, self._clock = file, clock

    def of(self, kind: str) -> Remembered | None:
        found = _entry(self._read().get(kind))
        if found is None or found.works or found.final:
            return found
        return found if 0 <= self._clock() - found.at < _FORGOTTEN_S else None

    def begin(self, kind: str) -> None:
        """Note that it is being tried: if the engine dies of it, that counts as a try."""
        before = self.of(kind)
        self._put(kind, Remembered(False, BEGUN, (before.tries if before else 0) + 1, self._clock()))

    def end(self, kind: str, proof: Proof) -> None:
        before = self.of(kind)
        tries = before.tries if before else 1
        self._put(kind, Remembered(proof.works, proof.why[:_WHY], tries, self._clock(), proof.final))

    def restore(self, kind: str, before: Remembered | None) -> None:
        """As if it had not been tried."""
        self._put(kind, before)

    def _put(self, kind: str, entry: Remembered | None) -> None:
        with _lock:
            known = self._read()
            known.pop(kind, None)
            if entry is not None:
                known[kind] = asdict(entry)
            newest = sorted(known.items(), key=lambda item: _at(item[1]), reverse=True)[:_MOST]
            try:
                layout.write_json(self._file, {"v": 1, "proofs": dict(newest)}, durable=False)
            except OSError as error:
                log.warning("%s can't be written: %s", self._file.name, error.strerror)

    def _read(self) -> dict[str, Any]:
        document = layout.read_json(self._file) or {}
        found = document.get("proofs")
        if document.get("v") == 1 and isinstance(found, dict):
            return {kind: row for kind, row in found.items() if _entry(row) is not None}
        if self._file.exists():
            log.warning("%s can't be read, so it is begun anew", self._file.name)
        return {}


def _entry(row: object) -> Remembered | None:
    if not isinstance(row, dict):
        return None
    works, why, tries, at = (row.get(name) for name in ("works", "why", "tries", "at"))
    if not isinstance(works, bool) or not isinstance(why, str) or type(tries) is not int:
        return None
    at = float(at) if isinstance(at, (int, float)) else math.nan
    return Remembered(works, why, tries, at, row.get("final") is True) if math.isfinite(at) else None


def _at(row: Any) -> float:
    return float(row["at"])


async def why_unproven(
    client: aiohttp.ClientSession, proofs: Proofs, kind: str, file: Path, ctx: int, limit_s: float
) -> str | None:
    """Why this kind of engine does not get its prompts back; None: it does. Tried once, then known."""
    known = await asyncio.to_thread(proofs.of, kind)
    if known is not None and known.settled:
        return None if known.works else known.why
    await asyncio.to_thread(proofs.begin, kind)
    try:
        proof = await prove(client, file, ctx=ctx, limit_s=limit_s)
    except asyncio.CancelledError:
        proofs.restore(kind, known)  # stopped meanwhile: it was no try
        raise
    await asyncio.to_thread(proofs.end, kind, proof)
    return None if proof.works else proof.why
