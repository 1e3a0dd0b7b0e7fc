"""The gate in front of models whose licence limits commercial use: accepted once, on this machine."""

from __future__ import annotations

import time
from typing import Any

from appliance.catalog import Model, ModelRef
from appliance.errors import LicenseNotAccepted
from appliance.operations.models import Library
from appliance.store import layout


def require_license(
    library: Library, ref: ModelRef, accepted: bool = False, command: str | None = None
) -> None:
    """Return when `ref` may be taken: its licence is free, or was accepted, or is now by `accepted`.

    `command` is what accepts it, told to people; None: a pull.

    An acceptance belongs to the licence as it read: another licence or note of the same model asks again.
    Raises LicenseNotAccepted with licence, note and how to accept.
    """
    model = ref.model
    if not model.restricted or has_accepted(library, model):
        return
    if not accepted:
        command = command or f"appliance models pull {ref.ref}"
        raise LicenseNotAccepted(
            f"{model.name} may not be taken before its licence is accepted: {model.license or 'unknown'}.",
            cause=model.license_note,
            hint=f"If your use is allowed: `{command} --accept-license`.",
        )
    document = _read(library)
    document["accepted"][model.id] = _words(model) | {"at": time.time()}
    layout.write_json(library.paths.licenses, document)


def has_accepted(library: Library, model: Model) -> bool:
    """Whether this licence of this model was accepted here."""
    known = _read(library)["accepted"].get(model.id)
    return isinstance(known, dict) and all(known.get(key) == text for key, text in _words(model).items())


def _words(model: Model) -> dict[str, Any]:
    return {"license": model.license, "note": model.license_note}


def _read(library: Library) -> dict[str, Any]:
    """A file that is broken or of another form counts as nothing accepted."""
    found = layout.read_json(library.paths.licenses)
    if found is None or not isinstance(found.get("accepted"), dict):
        return {"v": 1, "accepted": {}}
    return found
