"""`config.toml` edited in place: comments and order stay, and a text that would not load is never written."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomlkit
from pydantic import ValidationError
from tomlkit.items import AoT

from appliance import settings
from appliance.errors import SettingsError, UsageError


def get(file: Path, key: str) -> settings.Entry:
    """One key with its value and source. Raises SettingsError for an unknown key."""
    for entry in settings.entries(file):
        if entry.key == key:
            return entry
    raise SettingsError(f"There is no setting {key!r}.", hint="`appliance config show` lists all of them.")


def set_value(file: Path, key: str, raw: str) -> settings.Entry:
    """Write one key. Raises SettingsError and changes nothing when the value can't be used."""
    value = settings.from_text(key, raw)
    document = _read(file)
    section, name = key.split(".")
    if section not in document:
        document.add(section, tomlkit.table())
    table = document[section]
    if not isinstance(table, Mapping):
        raise SettingsError(f"{section} in {file} is not a table.")
    document[section][name] = value
    _write(file, document)
    return get(file, key)


def pin(file: Path, ref: str, pinned: bool) -> None:
    """Put `id:QUANT` into `models.pinned`, or take it out, also where its bare id stands there.

    Raises SettingsError.
    """
    value = get(file, "models.pinned").value
    known = [str(name) for name in value] if isinstance(value, (list, tuple)) else []
    names = (ref, ref.partition(":")[0])
    wanted = [*known, ref] if pinned else [name for name in known if name not in names]
    if wanted != known and not (pinned and any(name in known for name in names)):
        set_value(file, "models.pinned", ", ".join(wanted))


def add_remote(
    file: Path, name: str, url: str, *, kind: str, api_key_env: str, models: Mapping[str, str]
) -> settings.RemoteSettings:
    """Add a remote. Raises UsageError or SettingsError, and changes nothing, when it can't be used."""
    if "://" in url and "@" in url.split("://", 1)[1].split("/", 1)[0]:
        raise UsageError(
            "A key must not stand in the URL: it would be written to disk and to logs.",
            hint="Put it in an environment variable and name that with --api-key-env.",
        )
    try:
        settings.RemoteSettings(name=name, url=url, kind=kind, api_key_env=api_key_env, models=models)
    except ValidationError as error:
        raise settings.argument_error(error) from None
    document = _read(file)
    remotes = _remotes(document)
    if any(entry.get("name") == name for entry in remotes):
        raise UsageError(
            f"There is a remote {name!r} already.",
            hint=f"Take another name, or remove that one first: `appliance remote rm {name}`.",
        )
    table = tomlkit.table()
    table.update({"name": name, "kind": kind, "url": url})
    if api_key_env:
        table["api_key_env"] = api_key_env
    if models:
        inline = tomlkit.inline_table()
        inline.update(dict(models))
        table["models"] = inline
    document["remotes"] = tomlkit.aot()
    for entry in (*remotes, table):
        document["remotes"].append(entry)
    loaded = _write(file, document)
    return next(remote for remote in loaded.remotes if remote.name == name)


def remove_remote(file: Path, name: str) -> None:
    """Take a remote out. Raises SettingsError when there is none of that name."""
    document = _read(file)
    remotes = _remotes(document)
    kept = [entry for entry in remotes if entry.get("name") != name]
    if len(kept) == len(remotes):
        known = ", ".join(str(entry.get("name")) for entry in remotes) or "none"
        raise SettingsError(f"There is no remote {name!r}.", cause=f"Configured: {known}.")
    if kept:
        document["remotes"] = tomlkit.aot()
        for entry in kept:
            document["remotes"].append(entry)
    else:
        document.remove("remotes")
    _write(file, document)


def _remotes(document: tomlkit.TOMLDocument) -> list[Any]:
    found = document.get("remotes")
    return list(found) if isinstance(found, AoT) else []


def _read(file: Path) -> tomlkit.TOMLDocument:
    """The file's text as a document. A value that can't be used may stand in it: it may be what is mended."""
    return tomlkit.parse(settings.read_text(file))


def _write(file: Path, document: tomlkit.TOMLDocument) -> settings.Settings:
    text = tomlkit.dumps(document)
    loaded = settings.validate_text(text, file)
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=".config-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        Path(name).replace(file)
    except OSError as error:
        Path(name).unlink(missing_ok=True)
        raise SettingsError(f"{file} can't be written.", cause=error.strerror) from error
    return loaded
