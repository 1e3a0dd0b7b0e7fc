"""`up`: serve a model in the foreground until Ctrl-C, or in the background with --detach."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import click

from appliance.cli.ends import INTERRUPTED
from appliance.cli.licence import accept_option, allowed, with_licence
from appliance.cli.output import find_paths, library, remark, run, say
from appliance.cli.progress import Bar
from appliance.cli.wishes import (
    cpu_moe_option,
    ctx_option,
    draft_option,
    engine_option,
    kv_option,
    layers_option,
    parallel_option,
    profile_option,
    split_option,
    ubatch_option,
)
from appliance.client import DownloadRow
from appliance.daemon import Download, Interrupted, Options, serve
from appliance.errors import UnknownModel
from appliance.operations.machine.survey import Note
from appliance.operations.plans.family import is_family, resolve
from appliance.operations.plans.plan import Wishes

if TYPE_CHECKING:
    from appliance.operations.lessons.load_times import Estimate
    from appliance.operations.models import Library


@click.command()
@click.argument("model", required=False)
@click.option("--detach", is_flag=True, help="Start it in the background and return once it is ready.")
@click.option("--host", help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65_535), help="Port to listen on; 0 takes a free one.")
@ctx_option
@parallel_option
@layers_option
@kv_option
@ubatch_option
@cpu_moe_option
@split_option
@profile_option
@draft_option
@engine_option
@accept_option
@click.option("--json", "as_json", is_flag=True, help="One line of JSON once ready.")
@click.option("--retry", is_flag=True, help="Try again what ran out of memory with this model before.")
@click.option("--empty", is_flag=True, hidden=True, help="Start without a model.")
@click.pass_context
def up(
    click_ctx: click.Context,
    /,
    model: str | None,
    detach: bool,
    host: str | None,
    port: int | None,
    accept_license: bool,
    as_json: bool,
    retry: bool,
    empty: bool,
    **wishes: Any,
) -> None:
    """Serve MODEL (fetched and verified first) until Ctrl-C."""
    name = None if empty and model is None else choose(model, accept_license)
    if detach:
        from appliance.cli.detach import start

        document = start(_arguments(name, click_ctx.params))
        for note in document.get("notes", ()):
            show_note(Note(**note))
        say(json.dumps(document)) if as_json else _show_ready(document)
        return
    reporter = Console(as_json)
    try:
        run(serve(find_paths(), Options(name, host, port, retry, Wishes(**wishes)), reporter))
    except Interrupted:
        remark("Interrupted. The same command goes on; a source that can't resume (wheel) starts over.")
        click_ctx.exit(INTERRUPTED)
    if not as_json:
        remark("Stopped.")


def choose(model: str | None, accepted: bool = False) -> str | None:
    """The model to serve: as named, else the setting, the last one used, or the person's choice of three.

    Raises ModelMissing with three suggestions when there is nothing to go by and nobody to ask, or when the
    user's own files that it needs are gone; LicenseNotAccepted when it has to be fetched and its licence was
    not accepted here.
    """
    shelf = library()
    name = model if model is not None else _default(shelf)
    if is_family(shelf, name):
        name = run(resolve(shelf, name)).ref
    with contextlib.suppress(UnknownModel):  # a quant that no catalog lists is looked up below
        ref = shelf.resolve(name)
        if shelf.store.find(ref.ref) is not None:
            return ref.ref  # its licence matters when it is fetched, which it was
        shelf.store.require_not_lost(ref)
    return with_licence(lambda agreed: run(allowed(shelf, name, agreed)), accepted).ref


def _default(shelf: Library) -> str:
    if is_family(shelf, shelf.settings.models.default):
        return shelf.settings.models.default
    default = shelf.default()
    if default is not None:
        return default.ref
    from appliance.hardware import detect_safely

    machine = run(detect_safely())
    offers = shelf.suggestions(machine)
    if not (sys.stdin.isatty() and sys.stderr.isatty() and offers):
        raise shelf.require_suggestion(machine)
    return _ask(offers)


def _ask(offers: tuple[Any, ...]) -> str:
    from appliance.units import size

    remark("No model is here yet. Three that fit this machine:")
    for number, ref in enumerate(offers, 1):
        remark(
            f"  {number}  {ref.model.name} {ref.quant}  {size(ref.variant.size)}  {ref.model.license or ''}"
        )
    picked = click.prompt("Which one", type=click.IntRange(1, len(offers)), default=len(offers), err=True)
    chosen: str = offers[picked - 1].ref
    return chosen


class Console:
    """Progress on stderr, the ready line on stdout."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._bar: Bar | None = None

    def progress(self, download: Download) -> None:
        if self._bar is None:
            self._bar = Bar().__enter__()
        self._bar.row(DownloadRow.parse(download.to_json()))

    def loading(self, ref: str, estimate: Estimate | None) -> None:
        if self._bar is not None:
            self._bar.__exit__(None, None, None)
            self._bar = None
        remark(f"Loading {ref} ..." + ("" if estimate is None else f" ({estimate.text})"))

    def note(self, note: Note) -> None:
        show_note(note)

    def ready(self, document: Mapping[str, Any]) -> None:
        if self._as_json:
            say(json.dumps(document, ensure_ascii=False))
            sys.stdout.flush()
            return
        _show_ready(document)
        remark("Ctrl-C stops it.")


def show_note(note: Note) -> None:
    """What the load became, where that is less than planned, or than would fit."""
    remark(f"! {note.detail}")
    if note.todo:
        remark(f"  Do: {note.todo}")


def _show_ready(document: Mapping[str, Any]) -> None:
    plan = document["plan"]
    if plan is not None:
        layers = f"{plan['gpu_layers']} of {plan['n_layer'] + 1} layers on the GPU"
        slots = f"{plan['parallel']} slots of {plan['ctx']} tokens"
        say(f"{document['model']} · {document['engine']} · {layers} · {slots}")
        for reason in plan["reasons"]:
            say(f"  {reason['text'] if isinstance(reason, dict) else reason}")
    say(f"Serving {document['url']}  (daemon pid {document['pid']})")


def _arguments(name: str | None, given: Mapping[str, Any]) -> list[str]:
    """The same call for the background process."""
    found = ["up", name] if name else ["up", "--empty"]
    for option in ("host", "port", *(wish.name for wish in fields(Wishes))):
        if given[option] is not None:
            found += ["--" + option.replace("_", "-"), str(given[option])]
    found += ["--retry"] if given["retry"] else []
    return [*found, "--json"]
