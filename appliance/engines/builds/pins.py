"""Trust on first use: what a file's name stands for from the first time it was taken. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from appliance.engines.builds.records import Pin
from appliance.engines.builds.variants import VARIANTS
from appliance.errors import EngineError

Pins = Mapping[str, tuple[Pin, ...]]


def check(pins: Pins, file: str, variant: str, sha256: str) -> None:
    """Raises EngineError when a file of this name was taken before with other bytes.

    The publisher's folders for CUDA 12 and 13 may hold different files of one name, so a pin belongs to a
    variant of the index. A source that is no known variant has to match what is pinned anywhere.
    """
    known = pins.get(file, ())
    same = [pin for pin in known if pin.variant == variant]
    if not same and (variant not in VARIANTS or any(pin.variant not in VARIANTS for pin in known)):
        same = list(known)
    if same and all(pin.sha256 != sha256 for pin in same):
        raise EngineError(
            f"{file} is not the file that was taken before: it is refused.",
            cause=f"Its SHA-256 is {sha256}; {same[0].sha256} from {same[0].url} is pinned.",
            hint="Ask the publisher why it changed. If it is right: `appliance engines rm "
            f"{file} --forget`, then install again.",
        )


def added(pins: Pins, file: str, pin: Pin) -> dict[str, tuple[Pin, ...]]:
    """The pins with one more; the first one of its variant stays."""
    known = pins.get(file, ())
    if any(one.variant == pin.variant and one.sha256 == pin.sha256 for one in known):
        return dict(pins)
    return {**pins, file: (*known, pin)}


def without(pins: Pins, file: str) -> dict[str, tuple[Pin, ...]]:
    """The pins without those of a file."""
    return {name: kept for name, kept in pins.items() if name != file}
