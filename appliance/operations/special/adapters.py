"""The LoRA adapters of a model: found, proven, and checked against the model's header."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from appliance.catalog import File, ModelRef
from appliance.engines import Adapter
from appliance.errors import GgufError, ModelMissing, NotVerified
from appliance.gguf import Header, read_header
from appliance.operations.special import hashes
from appliance.operations.special.overrides import override_of
from appliance.paths import Paths
from appliance.planning import Lora
from appliance.planning.memory.lora import lora_of
from appliance.settings import LoraFile, Settings
from appliance.store import Stored
from appliance.text import clean_line


def of_catalog(ref: ModelRef, stored: Stored) -> tuple[Adapter, ...]:
    """Those of the model's own entry; the store has proven them."""
    scales = {pin.base_name: _scale(pin) for pin in ref.variant.files if pin.role == "lora"}
    return tuple(
        Adapter(file.path, file.sha256, scales.get(file.name, 1.0))
        for file in stored.files
        if file.role == "lora"
    )


def of_settings(settings: Settings, ref: ModelRef) -> tuple[Adapter, ...]:
    """Those that the settings name; nobody has looked at them."""
    return tuple(Adapter(_path(one), one.sha256, one.scale) for one in override_of(settings, ref).lora)


def _path(one: LoraFile) -> Path:
    try:
        return Path(one.file).expanduser()
    except RuntimeError:
        raise ModelMissing(
            f"{clean_line(one.file, 200)} can't be found.",
            cause="there is no such home folder",
            hint="Correct the path in config.toml.",
        ) from None


async def prove(paths: Paths, adapters: Sequence[Adapter]) -> None:
    """Their bytes are those that were stated. Raises ModelMissing and NotVerified."""
    for one in adapters:
        found = await hashes.sha256_of(paths, one.path)
        if found != one.sha256:
            raise NotVerified(
                f"{one.path} is not the adapter that config.toml states; it is not used.",
                cause=f"its SHA-256 is {found}, and {one.sha256} is stated",
                hint="Put the right file back. If this one is right, write its hash into config.toml "
                "(`appliance config path`), at `sha256` beside its path.",
            )


async def planned(model: Header, label: str, outside: Sequence[Adapter]) -> tuple[Lora, ...]:
    """What they take, by their headers. Raises ModelMissing; GgufError for one that is not for `model`."""
    return tuple([await asyncio.to_thread(_planned, model, label, one) for one in outside])


def as_pinned(ref: ModelRef, own: Sequence[Lora]) -> tuple[Lora, ...]:
    """Those of the model's own entry, with the scale and hash that it states."""
    pins = {pin.base_name: pin for pin in ref.variant.files if pin.role == "lora"}
    return tuple(
        replace(one, scale=_scale(pin), sha256=pin.sha256) if (pin := pins.get(one.name)) else one
        for one in own
    )


def _scale(pin: File) -> float:
    return 1.0 if pin.scale is None else pin.scale


def _planned(model: Header, label: str, one: Adapter) -> Lora:
    name = clean_line(one.path.name, 120)
    try:
        header = read_header(one.path)
    except OSError as error:
        raise ModelMissing(
            f"{one.path} can't be read.", cause=error.strerror, hint="Correct the path in config.toml."
        ) from None
    except GgufError as error:
        raise GgufError(
            f"{label} can't be started with {clean_line(str(one.path), 300)}: {error.message}",
            cause=error.cause,
            hint="Correct or remove it at `lora` of this model's [overrides] in config.toml "
            "(`appliance config path`).",
        ) from None
    try:
        return lora_of(header, model, name, scale=one.scale, sha256=one.sha256)
    except GgufError as error:
        raise GgufError(
            f"{label} can't be started with {name}: {error.message}", cause=error.cause, hint=error.hint
        ) from None
