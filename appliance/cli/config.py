"""`config path|show|get|set`."""

from __future__ import annotations

import json
from typing import Any

import click

from appliance.cli.output import cell, daemon_or_none, emit, find_paths, json_option, say, show, table


@click.group()
def config() -> None:
    """Settings: where they are, what holds, change one."""


@config.command()
@json_option
def path(as_json: bool) -> None:
    """Where config.toml lies."""
    file = find_paths().config_file
    emit({"path": str(file)}) if as_json else say(str(file))


@config.command("show")
@json_option
def show_all(as_json: bool) -> None:
    """Every key with its value and source."""
    from appliance import settings

    rows = [entry.to_json() for entry in settings.entries(find_paths().config_file)]
    if as_json:
        emit({"settings": rows})
        return
    made = table("Key", "Value", "From")
    for row in rows:
        source = cell(row["source"]) + (f"  ({row['note']})" if row["note"] else "")
        made.add_row(row["key"], cell(_text(row["value"])), source)
    show(made)


@config.command()
@click.argument("key")
@json_option
def get(key: str, as_json: bool) -> None:
    """The value of one key."""
    from appliance.operations import config as files

    entry = files.get(find_paths().config_file, key)
    emit(entry.to_json()) if as_json else say(_text(entry.value))


@config.command("set")
@click.argument("key")
@click.argument("value")
@json_option
def set_one(key: str, value: str, as_json: bool) -> None:
    """Change one key; a running daemon takes it over."""
    client = daemon_or_none()
    document: dict[str, Any]
    if client is not None:
        document = client.set_setting(key, value)
    else:
        from appliance.operations import config as files

        document = files.set_value(find_paths().make().config_file, key, value).to_json()
    if as_json:
        emit(document)
        return
    say(f"{document['key']} = {_text(document['value'])}  ({document['source']})")
    if document["source"].startswith("APPLIANCE_"):
        say(f"! The variable {document['source']} wins over the file.")
    if document.get("restart"):
        say("It takes effect at the next start of the daemon.")


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
