"""Saving what the slots of an engine hold, and giving it back to the next one. Nothing here raises."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import aiohttp

from appliance.engines.slots import wire
from appliance.engines.slots.rules import Entry, Skipped, kept, placed, worth_saving
from appliance.engines.slots.shelf import Shelf
from appliance.engines.slots.wire import Said, Slot, SlotError

log = logging.getLogger("appliance.prompts")
_STEP_S = 0.001
"""Between prompts that are saved or given back together: the more recently used stays the newer one."""
MARGIN = 256 << 20
"""Bytes of the disk that are left to others."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What may be kept."""

    budget: int
    """Bytes of all saved prompts."""
    age_s: float
    least_tokens: int
    margin: int = MARGIN


@dataclass(slots=True)
class Given:
    """What an engine got back, and how its slots were then."""

    slots: dict[int, Entry] = field(default_factory=dict)
    tasks: dict[int, int | None] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        return sum(entry.tokens for entry in self.slots.values())

    def unchanged(self, slots: Collection[Slot]) -> frozenset[int]:
        """Slots that no request has reached since."""
        return frozenset(
            slot.id for slot in slots if slot.id in self.slots and self.tasks.get(slot.id) == slot.task
        )


@dataclass(slots=True)
class Saved:
    """What was saved."""

    entries: list[Entry] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)


async def give_back(
    client: aiohttp.ClientSession, shelf: Shelf, key: str, said: Said, timeout_s: float, into: Given
) -> None:
    """Restore the newest prompts of this key into the empty slots; what an engine may not get is removed.

    `into` is filled as it goes on: it is true also when this is cancelled.
    """
    entries, now = await asyncio.to_thread(shelf.entries, key), shelf.now
    for slot, entry in placed(entries, said.slots):
        why = await asyncio.to_thread(shelf.refusal, entry, said)
        if why is None:
            try:
                tokens = await wire.restore(client, slot, entry.name, timeout_s)
                why = None if tokens == entry.tokens else f"{tokens} of {entry.tokens} tokens came back"
            except SlotError as error:
                why = error.message
            if why is not None:
                with contextlib.suppress(SlotError):
                    await wire.erase(client, slot)
        if why is None:
            with contextlib.suppress(OSError):
                into.slots[slot] = await asyncio.to_thread(shelf.given, entry, now - slot * _STEP_S)
        else:
            into.refused.append(why)
            await asyncio.to_thread(shelf.drop, [entry])
    with contextlib.suppress(SlotError):
        into.tasks |= {slot.id: slot.task for slot in await wire.look(client)}


async def save_all(
    client: aiohttp.ClientSession,
    shelf: Shelf,
    key: str,
    said: Said,
    *,
    limits: Limits,
    private: Collection[int],
    given: Given,
    bytes_per_token: float | None,
    timeout_s: float,
    into: Saved,
) -> None:
    """Save what is worth it, the most recently used slot first, within the limits.

    `into` is filled as it goes on: it is true also when this is cancelled.
    """
    slots = await wire.look(client)
    existing = await asyncio.to_thread(shelf.entries)
    held = sum(entry.n_bytes for entry in existing)
    room = max(0, min(limits.budget, await asyncio.to_thread(shelf.free) - limits.margin + held))
    chosen = worth_saving(
        slots,
        least_tokens=limits.least_tokens,
        private=private,
        unchanged=given.unchanged(slots),
        bytes_per_token=bytes_per_token,
        room=room,
    )
    into.skipped += chosen.skipped
    expected = int(sum(slot.tokens or 0 for slot in chosen.save) * (bytes_per_token or 0))
    await asyncio.to_thread(_make_room, shelf, max(0, room - expected), limits, {})
    now = shelf.now
    for rank, slot in enumerate(chosen.save):
        used_at = now - rank * _STEP_S
        try:
            into.entries.append(await _save(client, shelf, key, said, slot, timeout_s, used_at))
        except (SlotError, OSError) as error:
            why = error.message if isinstance(error, SlotError) else error.strerror or "the disk"
            into.skipped.append(Skipped(slot.id, why))
        else:
            if (old := given.slots.pop(slot.id, None)) is not None:
                await asyncio.to_thread(shelf.drop, [old])
    await asyncio.to_thread(_make_room, shelf, room, limits, {key: said.slots})


async def _save(
    client: aiohttp.ClientSession,
    shelf: Shelf,
    key: str,
    said: Said,
    slot: Slot,
    timeout_s: float,
    used_at: float,
) -> Entry:
    """Raises SlotError and OSError; nothing of it stays then."""
    name = shelf.new_name()
    try:
        tokens = await wire.save(client, slot.id, name, timeout_s)
        if slot.tokens is not None and tokens != slot.tokens:
            raise SlotError(f"{tokens} of {slot.tokens} tokens were saved.")
        return await asyncio.to_thread(shelf.add, key, name, tokens, said, used_at)
    except BaseException:
        shelf.discard(key, name)
        raise


def _make_room(shelf: Shelf, budget: int, limits: Limits, slots: Mapping[str, int]) -> None:
    found = kept(shelf.entries(), budget=budget, age_s=limits.age_s, now=shelf.now, slots=slots)
    for entry, why in found.go:
        log.info("a saved prompt of %d tokens goes: %s", entry.tokens, why)
    shelf.drop([entry for entry, _ in found.go])
