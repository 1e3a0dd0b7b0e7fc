"""Which prompts are saved, kept and given back. Pure; each answer has its reason."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from appliance.engines.slots.wire import Slot


@dataclass(frozen=True, slots=True)
class Entry:
    """One saved prompt on the disk."""

    key: str
    """The folder of its key."""
    name: str
    """Its file in there."""
    tokens: int
    n_bytes: int
    digest: str
    """xxh3 (128 bits) of the whole file."""
    saved_at: float
    """Unix seconds: its age counts from here."""
    used_at: float
    """When it was saved, or given back last."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A slot that is not saved, and why."""

    slot: int
    why: str


@dataclass(frozen=True, slots=True)
class Chosen:
    """What to save, most recently used first, and what not."""

    save: tuple[Slot, ...]
    skipped: tuple[Skipped, ...]


def worth_saving(
    slots: Sequence[Slot],
    *,
    least_tokens: int,
    private: Collection[int],
    unchanged: Collection[int],
    bytes_per_token: float | None,
    room: int,
) -> Chosen:
    """Which slots to save within `room` bytes, the most recently used first.

    `private` are slots with a prompt that must not be written, `unchanged` those whose file lies there
    already. `bytes_per_token` is what the plan reckons; None: not known, so size is looked at afterwards.
    """
    save: list[Slot] = []
    skipped: list[Skipped] = []
    for slot in sorted(slots, key=lambda one: one.task or 0, reverse=True):
        size = 0 if bytes_per_token is None else int((slot.tokens or 0) * bytes_per_token)
        why = _why_not(slot, least_tokens, private, unchanged)
        if why is None and size > room:
            why = f"it would take about {size >> 20} MiB, and there is room for {room >> 20}"
        if why is None:
            save.append(slot)
            room -= size
        else:
            skipped.append(Skipped(slot.id, why))
    return Chosen(tuple(save), tuple(skipped))


def _why_not(
    slot: Slot, least_tokens: int, private: Collection[int], unchanged: Collection[int]
) -> str | None:
    if slot.id in private:
        return "a request forbade it (no-store)"
    if slot.busy:
        return "it is busy"
    if slot.id in unchanged:
        return "its file is there already"
    if slot.tokens is None:
        return "nothing is in it"
    if slot.tokens < least_tokens:
        return f"{slot.tokens} tokens are fewer than prompt_cache.least_tokens"
    return None


@dataclass(frozen=True, slots=True)
class Kept:
    """What stays on the disk, most recently used first, and what goes, with the reason."""

    stay: tuple[Entry, ...]
    go: tuple[tuple[Entry, str], ...]


def kept(
    entries: Sequence[Entry],
    *,
    budget: int,
    age_s: float,
    now: float,
    slots: Mapping[str, int] | None = None,
) -> Kept:
    """What stays within `budget` bytes and `age_s`: the most recently used first.

    `slots` says for some keys how many of them can be given back at once: more are of no use. A file from
    the future (the clock was set back) is as old as one from now.
    """
    stay: list[Entry] = []
    go: list[tuple[Entry, str]] = []
    left, used = budget, dict[str, int]()
    for entry in sorted(entries, key=lambda one: (one.used_at, one.saved_at, one.name), reverse=True):
        most = None if slots is None else slots.get(entry.key)
        if now - entry.saved_at > age_s:
            go.append((entry, "it is too old"))
        elif most is not None and used.get(entry.key, 0) >= most:
            go.append((entry, "newer ones fill all slots"))
        elif entry.n_bytes > left:
            go.append((entry, "the disk budget is used up by newer ones"))
        else:
            stay.append(entry)
            left -= entry.n_bytes
            used[entry.key] = used.get(entry.key, 0) + 1
    return Kept(tuple(stay), tuple(go))


def placed(entries: Sequence[Entry], slots: int) -> tuple[tuple[int, Entry], ...]:
    """Which file goes into which slot: the most recently used into slot 0 and so on.

    A request that fits no slot takes the last of those not used yet: so the newest are overwritten last.
    """
    newest = sorted(entries, key=lambda one: (one.used_at, one.saved_at, one.name), reverse=True)
    return tuple(enumerate(newest[:slots]))
