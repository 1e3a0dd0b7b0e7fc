"""Prompts that outlive their engine: slots saved to disk before it stops, given back to the next one."""

from __future__ import annotations

from appliance.engines.slots.key import Key, key_of
from appliance.engines.slots.privacy import Privacy
from appliance.engines.slots.proof import Proof, prove
from appliance.engines.slots.proofs import Proofs, Remembered, why_unproven
from appliance.engines.slots.ram import cache_ram_mib
from appliance.engines.slots.rules import Entry, Kept, Skipped, kept, placed, worth_saving
from appliance.engines.slots.saving import Given, Limits, Saved, give_back, save_all
from appliance.engines.slots.shelf import Removed, Shelf
from appliance.engines.slots.suited import bytes_per_token, converses, why_never
from appliance.engines.slots.wire import Said, Slot, SlotError, said

__all__ = [
    "Entry",
    "Given",
    "Kept",
    "Key",
    "Limits",
    "Privacy",
    "Proof",
    "Proofs",
    "Remembered",
    "Removed",
    "Said",
    "Saved",
    "Shelf",
    "Skipped",
    "Slot",
    "SlotError",
    "bytes_per_token",
    "cache_ram_mib",
    "converses",
    "give_back",
    "kept",
    "key_of",
    "placed",
    "prove",
    "said",
    "save_all",
    "why_never",
    "why_unproven",
    "worth_saving",
]
