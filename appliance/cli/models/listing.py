"""`models list`: what the catalog lists and what is here."""

from __future__ import annotations

from typing import Any

import click

from appliance.cli.output import cell, daemon_or_none, emit, json_option, library, show, table
from appliance.units import size


@click.command("list")
@click.option("--here", is_flag=True, help="Only those on this disk.")
@json_option
def list_models(here: bool, as_json: bool) -> None:
    """What the catalog lists and what is here."""
    client = daemon_or_none()
    rows: list[dict[str, Any]] = client.call("GET", "/api/models")["models"] if client else library().rows()
    if here:
        rows = [row for row in rows if row["state"] != "absent"]
    if as_json:
        emit({"models": rows})
        return
    made = table("Model", "Size", "Use", "State", "License", right=("Size",))
    for row in rows:
        state = "loaded" if row["loaded"] else row["state"]
        limited = " (limited)" if row["license_note"] else ""
        made.add_row(
            cell(row["ref"]),
            size(row["size"]),
            " ".join(row["use"]),
            cell(state),
            cell(row["license"]) + limited,
        )
    show(made)
