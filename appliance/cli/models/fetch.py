"""`models pull`: through the daemon when one runs, else in this process."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from appliance.cli.output import daemon_or_none, emit, json_option, library, run, say
from appliance.cli.progress import Bar, DownloadBar
from appliance.client import Client


@click.command()
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


async def _pull_here(model: str) -> tuple[str, str]:
    shelf = library()
    ref = shelf.resolve(model)
    with Bar() as bar:
        stored = await shelf.pull(ref, bar.update)
    return stored.ref, str(stored.main)


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
