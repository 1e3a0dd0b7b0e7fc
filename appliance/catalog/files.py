"""Reading `models.toml`: the package's own, and the user's over it."""

from __future__ import annotations

import re
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from appliance.catalog.entries import Frozen, Model
from appliance.catalog.lookup import Catalog
from appliance.errors import CatalogError


def load(user_file: Path | None = None) -> Catalog:
    """The catalog of the package, with the user's own file over it (it may be absent).

    Raises CatalogError, which names file, line and key.
    """
    models = parse(_package_text(), "models.toml of the package")
    if user_file is not None:
        try:
            text = user_file.read_text(encoding="utf-8")
        except FileNotFoundError:
            text = "schema = 1"
        except (OSError, UnicodeDecodeError) as error:
            raise CatalogError(f"{user_file} can't be read.", cause=str(error)) from None
        models |= parse(text, str(user_file))
    return Catalog(models=models)


def parse(text: str, where: str) -> dict[str, Model]:
    """The models of one file. `where` names it in errors. Raises CatalogError."""
    hint = "Correct that line; the comment at the top of the shipped models.toml tells the form."
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CatalogError(f"{where} is not valid TOML.", cause=str(error), hint=hint) from None
    try:
        entries = _Document.model_validate(_with_ids(tree)).models
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        location = tuple(
            p for p in first["loc"] if p not in ("hf", "url", "wheel", "file") or p == first["loc"][-1]
        )
        key = ".".join(map(str, location)) or "the file"
        line = _line_of(text, location)
        at = f", line {line}" if line else ""
        raise CatalogError(f"{where}{at}: {key} can't be used.", cause=first["msg"], hint=hint) from None
    return dict(entries)


class _Document(Frozen):
    schema_: Literal[1] = Field(alias="schema")
    models: dict[str, Model] = Field(default_factory=dict)


def _with_ids(tree: dict[str, Any]) -> dict[str, Any]:
    models = tree.get("models")
    if isinstance(models, dict):
        for key, entry in models.items():
            if isinstance(entry, dict):
                entry["id"] = key
    return tree


def _line_of(text: str, location: tuple[int | str, ...]) -> int | None:
    """The line of a key by a plain scan: tables by their header, then the key, then the n-th `{` after it."""
    lines = text.splitlines()
    at, inside = _table_of(lines, location)
    for part in inside:
        start = at if at is not None else 0
        headers = (i for i in range(start + 1, len(lines)) if re.match(r"\s*\[\[?[^={]+\]\s*(#|$)", lines[i]))
        section = range(start, next(headers, len(lines)))
        if isinstance(part, int):
            braces = [i for i in section for _ in range(lines[i].count("{"))]
            at = braces[part] if part < len(braces) else at
        else:
            key = re.compile(rf"(?:^\s*|[{{,]\s*){re.escape(part)}\s*=")
            at = next((i for i in section if key.search(lines[i])), at)
    return None if at is None else at + 1


def _table_of(lines: list[str], location: tuple[int | str, ...]) -> tuple[int | None, tuple[int | str, ...]]:
    if len(location) < 2 or location[0] != "models":
        return None, location
    name = f'(?:"{re.escape(str(location[1]))}"|{re.escape(str(location[1]))})'
    nth, rest, suffix = 0, location[2:], r"\s*\]"
    if len(location) > 3 and location[2] == "variants" and isinstance(location[3], int):
        nth, rest, suffix = location[3], location[4:], r"\.variants\s*\]\]"
    header = re.compile(rf"\s*\[\[?\s*models\s*\.\s*{name}{suffix}")
    headers = [i for i, line in enumerate(lines) if header.match(line)]
    return (headers[nth] if nth < len(headers) else None), rest


def _package_text() -> str:
    packaged = resources.files("appliance") / "data" / "models.toml"
    if packaged.is_file():
        return packaged.read_text(encoding="utf-8")
    checkout = Path(__file__).resolve().parents[2] / "models.toml"
    try:
        return checkout.read_text(encoding="utf-8")
    except OSError as error:
        raise CatalogError(
            "The catalog of the package is missing.", cause=str(error), hint="Install the package again."
        ) from None
