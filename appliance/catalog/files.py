"""Reading the package's `models.toml`, the user's over it, and the pins that were made at a first use."""

from __future__ import annotations

import functools
import re
import stat
import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field, ValidationError

from appliance.catalog.entries import Frozen, Model, Pin, Pinned, Variant
from appliance.catalog.lookup import Catalog
from appliance.catalog.where import line_of
from appliance.catalog.words import reason
from appliance.errors import CatalogError

_PACKAGE = "models.toml of the package"
_FORM = "Correct that line; the comment at the top of the shipped models.toml tells the form."
_MACHINE_WRITTEN = "The program writes that file: take the broken entry out, and pull the model again."
_TAGS = ("hf", "url", "wheel", "file")
"""The kind of a source stands in pydantic's location without being a key."""


class _Document(Frozen):
    schema_: Literal[1] = Field(alias="schema")
    models: dict[str, Model] = Field(default_factory=dict)


class _Pins(Frozen):
    schema_: Literal[1] = Field(alias="schema")
    models: dict[str, Pinned] = Field(default_factory=dict)


_Form = TypeVar("_Form", _Document, _Pins)


def load(user_file: Path | None = None, pins_file: Path | None = None) -> Catalog:
    """The catalog of the package, the user's own file over it, then the pins (both files may be absent).

    An entry of the user replaces the package's of the same id. A pin adds a variant that neither has; where
    one has it meanwhile, that one counts. Raises CatalogError, which names file, line and key.
    """
    models = dict(package())
    if user_file is not None and (text := read_text(user_file)) is not None:
        models |= parse(text, str(user_file), "user")
    if pins_file is not None and (text := read_text(pins_file)) is not None:
        models |= _extended(models, parse_pins(text, str(pins_file)))
    return Catalog(models=models)


@functools.cache
def package() -> Mapping[str, Model]:
    """What ships. Raises CatalogError for a broken installation."""
    packaged = resources.files("appliance") / "data" / "models.toml"
    checkout = Path(__file__).resolve().parents[2] / "models.toml"
    try:
        text = (packaged if packaged.is_file() else checkout).read_text(encoding="utf-8")
    except OSError as error:
        raise CatalogError(
            "The catalog of the package is missing.", cause=str(error), hint="Install the package again."
        ) from None
    return parse(text, _PACKAGE)


def parse(text: str, where: str, pin: Pin = "catalog") -> dict[str, Model]:
    """The models of one file. `where` names it in errors; `pin` counts for variants that state none.

    Raises CatalogError.
    """
    models = _valid(_Document, text, where, _FORM).models
    return {
        key: model.model_copy(update={"variants": _marked(model.variants, pin)})
        for key, model in models.items()
    }


def parse_pins(text: str, where: str) -> dict[str, tuple[Variant, ...]]:
    """The variants of a `pins.toml` by model id. Raises CatalogError."""
    entries = _valid(_Pins, text, where, _MACHINE_WRITTEN).models
    return {key: _marked(entry.variants, "hub") for key, entry in entries.items()}


def read_text(file: Path) -> str | None:
    """The text of a catalog file, None when it is absent. Raises CatalogError with the line of a bad byte."""
    try:
        if not stat.S_ISREG(file.stat().st_mode):  # a pipe or a device might never end
            raise CatalogError(
                f"{file} can't be read.",
                cause="It is a folder, a pipe or a device, not a file.",
                hint="Move it away, or put a file there.",
            )
        raw = file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CatalogError(
            f"{file} can't be read.", cause=error.strerror, hint="Check its permissions, or move it away."
        ) from None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise CatalogError(
            f"{file}, line {line}: the text is not UTF-8.",
            cause=f"Byte {error.start} is 0x{raw[error.start]:02x}.",
            hint="Save the file as UTF-8.",
        ) from None


def _extended(models: Mapping[str, Model], pins: Mapping[str, tuple[Variant, ...]]) -> dict[str, Model]:
    """The models that get further variants. A pin of a model that is listed no more waits for its return."""
    changed = {}
    for key, variants in pins.items():
        model = models.get(key)
        if model is not None:
            known = {variant.quant.casefold() for variant in model.variants}
            added = tuple(variant for variant in variants if variant.quant.casefold() not in known)
            changed[key] = model.model_copy(update={"variants": model.variants + added})
    return changed


def _marked(variants: tuple[Variant, ...], pin: Pin) -> tuple[Variant, ...]:
    if pin == "catalog":
        return tuple(v if v.pin == "catalog" else v.model_copy(update={"pin": pin}) for v in variants)
    return tuple(v if v.pin != "catalog" else v.model_copy(update={"pin": pin}) for v in variants)


def _valid(form: type[_Form], text: str, where: str, hint: str) -> _Form:
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CatalogError(
            f"{where}{_line_said(str(error), text)}: this is not valid TOML.", cause=str(error), hint=hint
        ) from None
    except RecursionError:
        raise CatalogError(
            f"{where} can't be read.", cause="Its lists or tables are nested too deeply.", hint=hint
        ) from None
    if not tree:  # empty, or nothing but comments: no entries yet
        tree = {"schema": 1}
    try:
        return form.model_validate(_with_ids(tree) if form is _Document else tree)
    except ValidationError as error:
        raise _located(error, text, where, hint) from None


def _line_said(error: str, text: str) -> str:
    """Where the parser stopped: it says so in words only."""
    if found := re.search(r"\(at line (\d+),", error):
        return f", line {found[1]}"
    return f", line {max(1, len(text.splitlines()))}" if "end of document" in error else ""


def _located(error: ValidationError, text: str, where: str, hint: str) -> CatalogError:
    """The first problem with its line and key; an unknown key says more than what is missing for it."""
    found = error.errors(include_url=False, include_input=False)
    first = min(found, key=lambda problem: problem["type"] != "extra_forbidden")
    location = tuple(part for part in first["loc"] if part not in _TAGS or part == first["loc"][-1])
    key = ".".join(map(str, location)) or "the file"
    line = line_of(text, location)
    at = f", line {line}" if line else ""
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return CatalogError(f"{where}{at}: {key} can't be used.", cause=reason(first) + more, hint=hint)


def _with_ids(tree: dict[str, Any]) -> dict[str, Any]:
    models = tree.get("models")
    if isinstance(models, dict):
        for key, entry in models.items():
            if isinstance(entry, dict):
                entry["id"] = key
    return tree
