"""`models verify|rm`: look after what is here."""

from __future__ import annotations

import click

from appliance.cli.output import daemon_or_none, emit, json_option, library, remark, run, say
from appliance.cli.progress import Bar
from appliance.errors import NotVerified
from appliance.units import size


@click.command()
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


@click.command()
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


async def _verify_here(model: str) -> str:
    shelf = library()
    ref = shelf.resolve(model)
    with Bar() as bar:
        await shelf.store.verify(ref, bar.update)
    return ref.ref
