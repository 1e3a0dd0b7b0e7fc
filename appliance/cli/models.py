"""`models list|pull|verify|rm`: through the daemon when one runs, else in this process."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from appliance.cli.output import (
    cell,
    daemon_or_none,
    emit,
    json_option,
    library,
    remark,
    run,
    say,
    show,
    table,
)
from appliance.cli.progress import Bar, DownloadBar
from appliance.client import Client
from appliance.errors import NotVerified
from appliance.units import size


@click.group()
def models() -> None:
    """List, fetch, check and remove models."""


@models.command("list")
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


@models.command()
@click.argument("model")
@json_option
def pull(model: str, as_json: bool) -> None:
    """Fetch a model and prove its hash. Ctrl-C keeps what has arrived."""
    client = daemon_or_none()
    if client is not None:
        row = _pull_through(client, model)
        ref, path = row["ref"], row["path"]
    else:
        ref, path = run(_pull_here(model))
    emit({"ref": ref, "path": path, "verified": True}) if as_json else say(
        f"{ref} is here and verified: {path}"
    )


@models.command()
@click.argument("model")
@json_option
def verify(model: str, as_json: bool) -> None:
    """Hash a model's files again and compare with the pin."""
    client = daemon_or_none()
    try:
        ref = client.verify(model)["ref"] if client else run(_verify_here(model))
    except NotVerified as error:
        if as_json:
            emit({"model": model, "verified": False, "error": error.to_json()})
            remark(f"✖ {error.message}")
            raise click.exceptions.Exit(error.exit_code) from None
        raise
    emit({"model": ref, "verified": True}) if as_json else say(f"{ref} matches its SHA-256.")


@models.command()
@click.argument("model")
@json_option
def rm(model: str, as_json: bool) -> None:
    """Delete a model's files. Refused while it is loaded."""
    client = daemon_or_none()
    freed: int | None
    if client is not None:
        freed = client.remove(model).get("freed")
    else:
        shelf = library()
        freed = shelf.remove(model)
    emit({"model": model, "freed": freed}) if as_json else say(f"Removed {model}: {size(freed)} freed.")


async def _pull_here(model: str) -> tuple[str, str]:
    shelf = library()
    ref = shelf.resolve(model)
    with Bar() as bar:
        stored = await shelf.pull(ref, bar.update)
    return stored.ref, str(stored.main)


async def _verify_here(model: str) -> str:
    shelf = library()
    ref = shelf.resolve(model)
    with Bar() as bar:
        await shelf.store.verify(ref, bar.update)
    return ref.ref


def _pull_through(client: Client, model: str) -> dict[str, Any]:
    """Let the daemon fetch it and follow; Ctrl-C stops the transfer and keeps the partial file."""
    return asyncio.run(_follow(client, client.start_download(model)))


async def _follow(client: Client, key: str) -> dict[str, Any]:
    with DownloadBar() as bar:
        try:
            download = await bar.follow(client, key)
        except asyncio.CancelledError:
            client.cancel_download(key)
            raise
    rows = client.call("GET", "/api/models")["models"]
    return next(dict(row) for row in rows if row["ref"] == download["ref"])
