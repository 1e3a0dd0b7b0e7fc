"""Where a value comes from: the environment (`APPLIANCE_<SECTION>__<KEY>`), the file, else the default."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from appliance.errors import SettingsError
from appliance.settings.failures import settings_error
from appliance.settings.model import Settings, keys
from appliance.settings.model import section as section_of

ENV_PREFIX = "APPLIANCE_"
WITHOUT_EFFECT = frozenset({"goals.cost_per_day"})
"""Keys that are read and checked, and that no room uses yet: `config show` says so."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One key as `config show` prints it."""

    key: str
    value: Any
    source: str
    """`default`, the file's path, or the variable's name."""

    @property
    def note(self) -> str | None:
        """What to know about the key."""
        return "has no effect in this version" if self.key in WITHOUT_EFFECT else None

    def to_json(self) -> dict[str, Any]:
        return {"key": self.key, "value": self.value, "source": self.source, "note": self.note}


def load(file: Path, env: Mapping[str, str] | None = None) -> Settings:
    """Read `file` (it may be absent) and the environment.

    Raises SettingsError, which names the key, for a value that can't be used.
    """
    return _validate(_merged(file, env or os.environ)[0], file)


def entries(file: Path, env: Mapping[str, str] | None = None) -> tuple[Entry, ...]:
    """Every key with its value in force and where it comes from."""
    merged, sources = _merged(file, env or os.environ)
    shown = _validate(merged, file).model_dump(mode="json")
    found: list[Entry] = []
    for section, values in shown.items():
        if section in ("aliases", "remotes", "overrides"):
            found += _whole(section, values, sources.get(section, "default"))
            continue
        for key, value in values.items():
            name = f"{section}.{key}"
            found.append(Entry(name, value, sources.get(name, "default")))
    return tuple(found)


def _whole(section: str, values: Any, source: str) -> list[Entry]:
    """A section without keys of its own: one row, and of `overrides` one for each thing that is set."""
    if section != "overrides" or not values:
        return [Entry(section, values, source)]
    return [
        Entry(f'overrides."{model}".{key}', value, source)
        for model, one in values.items()
        for key, value in one.items()
        if value
    ]


def validate_text(text: str, file: Path) -> Settings:
    """The settings that a new text of `file` would give. Raises SettingsError."""
    return _validate(_parse(text, file), file)


def _parse(text: str, file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(
            f"{file} is not valid TOML.", cause=str(error), hint="Correct that line, or move the file away."
        ) from None


def read_text(file: Path) -> str:
    """The text of `file`, valid TOML; empty when there is none. Raises SettingsError."""
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError:
        raise SettingsError(f"{file} is not UTF-8 text.", hint="Save it as UTF-8, or move it away.") from None
    except OSError as error:
        raise SettingsError(
            f"{file} can't be read.", cause=error.strerror, hint="Make it a readable file, or move it away."
        ) from None
    _parse(text, file)
    return text


def _merged(file: Path, env: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    text = read_text(file)
    tree = _parse(text, file)
    sources: dict[str, str] = {}
    for section, values in tree.items():
        if section in ("aliases", "remotes", "overrides") or not isinstance(values, dict):
            sources[section] = str(file)
        else:
            sources.update({f"{section}.{key}": str(file) for key in values})
    known = set(keys())
    for name, raw in env.items():
        section, _, key = name.removeprefix(ENV_PREFIX).lower().partition("__")
        if name.startswith(ENV_PREFIX) and f"{section}.{key}" in known:
            tree.setdefault(section, {})
            if isinstance(tree[section], dict):
                tree[section][key] = _from_text(section, key, raw)
                sources[f"{section}.{key}"] = name
    return tree, sources


def _from_text(section: str, key: str, raw: str) -> Any:
    """A value from a variable or the command line: lists are JSON or separated by commas."""
    kind = section_of(section)
    if str(kind.model_fields[key].annotation).startswith("tuple"):
        if raw.lstrip().startswith("["):
            return tuple(json.loads(raw))
        return tuple(part.strip() for part in raw.split(",") if part.strip())
    return raw


def text_of(value: object) -> str:
    """A JSON value in the form that `from_text` reads."""
    return json.dumps(value) if not isinstance(value, str) else value


def from_text(key: str, raw: str) -> Any:
    """The value that `config set key raw` writes. Raises SettingsError for an unknown key or a bad value."""
    if key not in keys():
        by_hand = key.partition(".")[0] in ("aliases", "remotes", "overrides")
        raise SettingsError(
            f"{key!r} can't be set here." if by_hand else f"There is no setting {key!r}.",
            hint="It is written by hand: `appliance config path` says where."
            if by_hand
            else "`appliance config show` lists all of them.",
        )
    section, name = key.split(".")
    try:
        value = _from_text(section, name, raw)
    except ValueError as error:
        raise SettingsError(f"{key} can't be {raw!r}.", cause=str(error)) from None
    kind = section_of(section)
    try:
        checked = kind.model_validate({name: value})
    except ValidationError as error:
        shown = "the value given" if "@" in raw else f"{key} = {raw!r}"  # it may hold a password
        raise settings_error(error, shown, section) from None
    typed = getattr(checked, name)
    if isinstance(value, str) and isinstance(typed, (int, float)) and not _is_number(value):
        return value  # keep `30m` as the user wrote it
    return list(typed) if isinstance(typed, tuple) else typed


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return text.lower() in ("true", "false")
    return True


def _validate(tree: Mapping[str, Any], file: Path) -> Settings:
    try:
        return Settings.model_validate(tree)
    except ValidationError as error:
        raise settings_error(error, str(file)) from None
