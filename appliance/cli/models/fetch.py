"""`models pull`: through the daemon when one runs, else in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from appliance.cli.licence import accept_option, allowed, with_licence
from appliance.cli.output import daemon_or_none, emit, json_option, library, remark, run, say
from appliance.cli.progress import Bar, DownloadBar
from appliance.client import Client, StartRow
from appliance.client.following import find
from appliance.errors import ApplianceError
from appliance.units import parse_size, size

if TYPE_CHECKING:
    from appliance.catalog import ModelRef
    from appliance.operations.models import Library


def _rate(_: click.Context, __: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    try:
        rate = parse_size(value.removesuffix("/s"))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if rate < 1:
        raise click.BadParameter("it must be more than nothing, like 5MiB.")
    return rate


@click.command()
@click.argument("model")
@click.option("--limit-rate", callback=_rate, metavar="SIZE", help="At most so much a second, like 5MiB.")
@accept_option
@json_option
def pull(model: str, limit_rate: int | None, accept_license: bool, as_json: bool) -> None:
    """Fetch a model and prove its hash. Ctrl-C keeps what has arrived.

    With --json: {"ref", "path", "verified": true}. While a daemon runs, it does the work: a download that is
    paused there goes on, and one that runs there is followed.
    """
    client = daemon_or_none()
    if client is not None:
        ref, path = _pull_through(client, model, limit_rate, accept_license)
    else:
        ref, path = _pull_here(library(), model, limit_rate, accept_license)
    emit({"ref": ref, "path": path, "verified": True}) if as_json else say(
        f"{ref} is here and verified: {path}"
    )


def _pull_here(shelf: Library, model: str, rate: int | None, accepted: bool) -> tuple[str, str]:
    ref = with_licence(lambda agreed: run(allowed(shelf, model, agreed)), accepted)
    try:
        return run(_transfer(shelf, ref, rate))
    except KeyboardInterrupt:
        wheel = not ref.variant.resumable
        remark("A wheel starts over." if wheel else "What has arrived is kept; the same command goes on.")
        raise


async def _transfer(shelf: Library, ref: ModelRef, rate: int | None) -> tuple[str, str]:
    with Bar() as bar:
        stored = await shelf.store.pull(ref, bar.update, rate=rate)
    return stored.ref, str(stored.main)


def _pull_through(client: Client, model: str, rate: int | None, accepted: bool) -> tuple[str, str]:
    started = with_licence(
        lambda agreed: client.start_download(model, accept_license=agreed, rate=rate), accepted
    )
    _remark_on(started, rate)
    try:
        ref = run(_follow(client, started.id))
    except KeyboardInterrupt:
        _let_go(client, started)
        raise
    rows = client.call("GET", "/api/models")["models"]
    return ref, str(next(row["path"] for row in rows if row["ref"] == ref))


def _remark_on(started: StartRow, rate: int | None) -> None:
    if started.how == "joined":
        remark("The daemon is fetching it already.")
        if rate is not None and rate != started.limit:
            limit = "no limit of its own" if started.limit is None else f"{size(started.limit)}/s"
            remark(f"It keeps its rate ({limit}): pause it and pull again to change that.")
    elif started.how == "resumed":
        remark("It was paused in the daemon; it goes on.")


async def _follow(client: Client, key: str) -> str:
    with DownloadBar() as bar:
        return (await bar.follow(client, key)).ref


def _let_go(client: Client, started: StartRow) -> None:
    """After Ctrl-C: as it was before this command came."""
    try:
        if started.how == "joined":
            remark("The daemon goes on with it: it was on its way before this command.")
        elif started.how == "resumed":
            client.pause_download(started.id)
            remark("It is paused again, as it was before this command.")
        elif find(client, started.id).paused:
            remark("It stays paused in the daemon; the same command resumes it.")
        else:
            client.cancel_download(started.id)
            remark("Stopped. What has arrived is kept; the same command goes on.")
    except ApplianceError as error:
        remark(f"The daemon was not told: {error.message}")
