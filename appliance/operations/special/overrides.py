"""What the settings say for one model."""

from __future__ import annotations

from appliance.catalog import ModelRef
from appliance.settings import Override, Settings

_NONE = Override()


def override_of(settings: Settings, ref: ModelRef) -> Override:
    """By `id:QUANT` and by id; what the first one sets wins, key by key."""
    wide = settings.overrides.get(ref.id, _NONE)
    near = settings.overrides.get(ref.ref, _NONE)
    return Override(lora=near.lora or wide.lora, draft=near.draft or wide.draft)
