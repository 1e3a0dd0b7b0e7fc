"""`models.toml` of the user and `pins.toml`, edited in place: comments and order stay.

A text that would not load, or would mean something else than intended, is never written. One writer at a time
over all processes; readers see the old or the new file.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AoT, Array, InlineTable, Table

from appliance import catalog, processes
from appliance.catalog import File, Model, Variant
from appliance.errors import ApplianceError, CatalogError, UsageError
from appliance.paths import Paths

_WAIT_S = 10.0
_NEW_MODELS = """\
# Your own models: added to those of the package, or in place of the one of the same ID.

schema = 1
"""
_NEW_PINS = """\
# Written by the program: variants of listed models, as they were pinned at their first use.

schema = 1
"""


class Meanwhile(UsageError):
    """Another process wrote that entry first: what is there now counts."""


def add_pin(paths: Paths, model_id: str, variant: Variant) -> Variant:
    """Add a variant to `pins.toml`. When another process pinned that quant meanwhile, its pin is returned."""
    file = paths.pins
    with _alone(paths), _saying(file):
        text = _begun(catalog.read_text(file), _NEW_PINS)
        before = catalog.parse_pins(text, str(file))
        for known in before.get(model_id, ()):
            if known.quant.casefold() == variant.quant.casefold():
                return known
        expected = before | {model_id: (*before.get(model_id, ()), variant)}
        after = _edited(
            text,
            lambda document: _append(_entry(document, model_id), variant, stated=True),
            lambda new: catalog.parse_pins(new, str(file)) == expected,
        )
        _write(file, after)
        return variant


def add_model(paths: Paths, model: Model) -> None:
    """Add a model of one variant to the user's models.toml. Raises Meanwhile when its id is there."""

    def meaning(before: Mapping[str, Model]) -> Model:
        if model.id in before:
            raise Meanwhile(f"{model.id} was added meanwhile.", hint="Look at it, then try again.")
        return model

    _extend(paths, model.id, meaning, lambda document: _fill(_entry(document, model.id), model))


def add_variant(paths: Paths, model_id: str, variant: Variant) -> None:
    """Add a variant to a model of the user's models.toml. Raises Meanwhile when that quant is there."""

    def meaning(before: Mapping[str, Model]) -> Model:
        present = before[model_id].variants
        if variant.quant.casefold() in {other.quant.casefold() for other in present}:
            raise Meanwhile(
                f"{model_id}:{variant.quant} was added meanwhile.", hint="Look at it, then try again."
            )
        return before[model_id].model_copy(update={"variants": (*present, variant)})

    _extend(paths, model_id, meaning, lambda document: _append(_entry(document, model_id), variant))


def own_models(paths: Paths) -> Mapping[str, Model]:
    """What the user's models.toml holds. Raises CatalogError."""
    text = catalog.read_text(paths.user_catalog)
    return {} if not text else catalog.parse(text, str(paths.user_catalog), "user")


def _extend(
    paths: Paths,
    model_id: str,
    meaning: Callable[[Mapping[str, Model]], Model],
    edit: Callable[[tomlkit.TOMLDocument], None],
) -> None:
    """Let `edit` change the user's models.toml; `meaning` says what the model is to be afterwards."""
    file = paths.user_catalog
    with _alone(paths), _saying(file):
        text = _begun(catalog.read_text(file), _NEW_MODELS)
        before = catalog.parse(text, str(file), "user")
        expected = before | {model_id: meaning(before)}
        after = _edited(text, edit, lambda new: catalog.parse(new, str(file), "user") == expected)
        _write(file, after)


def _begun(text: str | None, new: str) -> str:
    """A file to add to: what is there, with a schema where it holds nothing but comments."""
    if text is None or not text.strip():
        return new
    bare = all(line.strip()[:1] in ("", "#") for line in text.splitlines())
    return f"{text.rstrip()}\n\nschema = 1\n" if bare else text


def _edited(
    text: str, edit: Callable[[tomlkit.TOMLDocument], None], as_meant: Callable[[str], bool]
) -> str | None:
    """The text after `edit`: in its place, else as further tables at the end; None when neither means it.

    An unusual layout (dotted keys, tables in line) is beyond the editor; then the end of the file may do.
    """
    whole = text if text.endswith("\n") else text + "\n"
    for start, kept in ((whole, ""), ("", whole + "\n")):
        try:
            document = tomlkit.parse(start)
            edit(document)
            after = kept + tomlkit.dumps(document)
            if as_meant(after):
                return after
        except (TOMLKitError, CatalogError, ValueError, TypeError, KeyError, AttributeError):
            continue
    return None


def _entry(document: tomlkit.TOMLDocument, model_id: str) -> Any:
    """The table `models.ID`, made when it is not there."""
    if "models" not in document:
        document["models"] = tomlkit.table(is_super_table=True)
    models: Any = document["models"]
    if model_id not in models:
        models[model_id] = tomlkit.table()
    return models[model_id]


def _fill(entry: Any, model: Model) -> None:
    for key in ("family", "name", "params", "context", "license", "license_note", "use", "notes"):
        value = getattr(model, key)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if value is not None:
            entry[key] = list(value) if isinstance(value, tuple) else value
    for variant in model.variants:
        _append(entry, variant)


def _append(entry: Any, variant: Variant, *, stated: bool = False) -> None:
    """Add a variant as the others of the entry are written. `stated`: name the pin's origin in any case."""
    fields: dict[str, Any] = {"quant": variant.quant}
    if stated or variant.pin == "hub":
        fields["pin"] = variant.pin
    if variant.pin_host is not None:
        fields["pin_host"] = variant.pin_host
    fields["source"] = _inline(variant.source.model_dump())
    fields["files"] = _lines(variant.files)
    present = entry.get("variants")
    if isinstance(present, Array):
        inline = tomlkit.inline_table()
        inline.update(fields | {"files": [_file(file) for file in variant.files]})
        present.append(inline)
        return
    table: Table = tomlkit.table()
    table.update(fields)
    if isinstance(present, AoT):
        present.append(table)
    else:
        tables = tomlkit.aot()
        tables.append(table)
        entry["variants"] = tables


def _lines(files: tuple[File, ...]) -> Array:
    array = tomlkit.array()
    for file in files:
        array.append(_file(file))
    array.multiline(True)
    return array


def _file(file: File) -> InlineTable:
    return _inline({key: value for key, value in file.model_dump().items() if value not in (None, ())})


def _inline(fields: Mapping[str, Any]) -> InlineTable:
    table = tomlkit.inline_table()
    table.update(dict(fields))
    return table


@contextlib.contextmanager
def _saying(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CatalogError(
            f"{file} can't be written.", cause=error.strerror or str(error), hint="Nothing was changed."
        ) from error


def _write(file: Path, text: str | None) -> None:
    """Replace the file as a whole, keeping mode, line ends and byte order mark; a link stays a link."""
    if text is None:
        raise CatalogError(
            f"{file} is written in a way that can't be added to safely; nothing was changed.",
            hint="Write its tables as in the shipped models.toml: [models.ID] and [[models.ID.variants]].",
        )
    target = file.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}-")
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(_as_written(text, target))
            out.flush()
            os.fsync(out.fileno())
        if target.exists():
            shutil.copymode(target, name)
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _as_written(text: str, target: Path) -> bytes:
    """The bytes of `text` with the line ends and the mark that the file has now."""
    before = target.read_bytes() if target.exists() else b""
    if before.count(b"\r\n") and before.count(b"\r\n") == before.count(b"\n"):
        text = text.replace("\r\n", "\n").replace("\n", "\r\n")
    mark = codecs.BOM_UTF8 if before.startswith(codecs.BOM_UTF8) else b""
    return mark + text.encode()


@contextlib.contextmanager
def _alone(paths: Paths) -> Iterator[None]:
    """One writer at a time; the lock ends with its process. Raises ApplianceError after ten seconds."""
    paths.state.mkdir(parents=True, exist_ok=True)
    with (paths.state / "catalog.lock").open("w") as file:
        if not processes.locked_within(file.fileno(), _WAIT_S):
            raise ApplianceError(
                "Another `appliance` is writing the catalog and does not end.", hint="Try again."
            )
        yield
