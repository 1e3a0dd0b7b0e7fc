"""`doctor --bundle`: what whoever helps needs to know, without what is nobody's business."""

from appliance.operations.bundle.packing import NO_PROMPTS, Packed, default_name, pack

__all__ = ["NO_PROMPTS", "Packed", "default_name", "pack"]
