"""`models load|unload|restart|pin|unpin`: which models the daemon holds in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from appliance.cli.output import daemon, emit, json_option, remark, say, say_wrapped
from appliance.cli.wishes import ctx_option, kv_option, layers_option, parallel_option
from appliance.client import Client
from appliance.errors import NoDaemon
from appliance.text import clean_line
from appliance.units import about


@click.command()
@click.argument("model")
@ctx_option
@parallel_option
@layers_option
@kv_option
@json_option
def load(
    model: str, ctx: int | None, parallel: int | None, gpu_layers: int | None, kv: str | None, as_json: bool
) -> None:
    """Load a model that is here, and make it the default.

    Others make way when it doesn't fit beside them; pinned ones stay. One that is loaded is planned anew.
    With --json: {"ref", "state"}.
    """
    client = _daemon(f"`appliance up {clean_line(model, 100)}` starts one and loads it.")
    remark(f"Loading {clean_line(model, 100)} ...")

    def work() -> dict[str, Any]:
        return client.load(model, ctx=ctx, parallel=parallel, gpu_layers=gpu_layers, kv=kv)

    _loaded(client, model, work, as_json, "Requests that name no model go to it now.")


@click.command()
@click.argument("model")
@json_option
def unload(model: str, as_json: bool) -> None:
    """Free the memory of a loaded model; running requests end.

    A load that is under way ends, too. A request that names it loads it again, unless `models.on_demand` is
    off. With --json: {"ref", "state"}.
    """
    done = _daemon("Without one no model is loaded.").unload(model)
    if as_json:
        emit(done)
        return
    say(f"{_ref(done, model)} is not loaded any more.")


@click.command()
@click.argument("model")
@json_option
def restart(model: str, as_json: bool) -> None:
    """Load a model again, with what is free now; running requests end.

    With --json: {"ref", "state"}.
    """
    client = _daemon(f"`appliance up {clean_line(model, 100)}` starts one and loads it.")
    remark(f"Loading {clean_line(model, 100)} again ...")
    _loaded(client, model, lambda: client.restart(model), as_json, "")


@click.command()
@click.argument("model")
@json_option
def pin(model: str, as_json: bool) -> None:
    """Keep a model loaded once it is: it makes way for no other.

    `models.pinned` in the settings is changed. With --json: {"ref", "pinned"}.
    """
    _pin(model, True, as_json)


@click.command()
@click.argument("model")
@json_option
def unpin(model: str, as_json: bool) -> None:
    """Let a pinned model make way for others again.

    `models.pinned` in the settings is changed. With --json: {"ref", "pinned"}.
    """
    _pin(model, False, as_json)


def _pin(model: str, pinned: bool, as_json: bool) -> None:
    done = _daemon("`appliance config set models.pinned` changes the list without one.").pin(model, pinned)
    if as_json:
        emit(done)
        return
    now = "is pinned: once loaded, it stays." if pinned else "is not pinned: it may make way for others."
    say(f"{_ref(done, model)} {now}")


def _daemon(instead: str) -> Client:
    """The running daemon. Raises NoDaemon with what to do instead."""
    try:
        return daemon()
    except NoDaemon as error:
        hint = f"{instead} {error.hint}" if error.hint else instead
        raise NoDaemon(error.message, cause=error.cause, hint=hint) from None


def _loaded(
    client: Client, model: str, work: Callable[[], dict[str, Any]], as_json: bool, remarked: str
) -> None:
    """Do what loads it, and say what became of it."""
    try:
        done = work()
    except KeyboardInterrupt:
        stop = f"`appliance models unload {clean_line(model, 100)}` stops it."
        remark(f"The daemon goes on with it. {stop}")
        raise
    if as_json:
        emit(done)
        return
    name = _ref(done, model)
    row = client.status().engine_of(name)
    took = "" if row is None or row.load_s is None else f" It took {about(row.load_s)}."
    say_wrapped(f"{name} is loaded.{took} {remarked}".rstrip())


def _ref(done: dict[str, Any], model: str) -> str:
    return clean_line(str(done.get("ref") or model), 200)
