"""`logs`: what the engines wrote, and what happened to them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import click

from appliance.cli.output import daemon, emit, json_option, say
from appliance.client import Client
from appliance.client.library import EventRow

_LOOK_AGAIN_S = 0.5
_PAGE = 2_000


@click.command()
@click.argument("model", required=False)
@click.option("-f", "--follow", is_flag=True, help="Keep printing new lines until Ctrl-C.")
@click.option("-n", "--lines", default=100, show_default=True, type=click.IntRange(1, _PAGE))
@click.option("--events", is_flag=True, help="What happened to engines: loaded, crashed, restarted, ...")
@json_option
def logs(model: str | None, follow: bool, lines: int, events: bool, as_json: bool) -> None:
    """The log of the engines, without prompts; with MODEL, of that model's alone.

    Where several engines have a log, each line begins with its model.
    """
    client = daemon()
    if events:
        _events(client, model, follow, lines, as_json)
        return
    page = client.logs(0, lines, model=model, newest=True)
    if as_json:
        emit({"lines": list(page.lines[-lines:])})
        return
    for line in page.lines[-lines:]:
        say(line)
    after = page.next
    while follow:
        time.sleep(_LOOK_AGAIN_S)
        page = client.logs(after, _PAGE, model=model)
        after = page.next
        for line in page.lines:
            say(line)


def _events(client: Client, model: str | None, follow: bool, count: int, as_json: bool) -> None:
    page = client.engine_events(0, _PAGE)
    found = list(_about(page.events, model))[-count:]
    if as_json:
        emit({"events": [_document(event) for event in found]})
        return
    while True:
        for event in found:
            say(event_line(event))
        if not follow:
            return
        time.sleep(_LOOK_AGAIN_S)
        page = client.engine_events(page.next, _PAGE)
        found = list(_about(page.events, model))


def event_line(event: EventRow) -> str:
    """`2026-11-30 22:26:08  crashed   The engine ended while serving (...). Why.`"""
    when = "?" if event.at is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event.at))
    return f"{when}  {event.kind:<9}  " + " ".join(part for part in (event.text, event.detail) if part)


def _about(events: Iterable[EventRow], model: str | None) -> Iterable[EventRow]:
    return (
        event
        for event in events
        if model is None or (event.ref is not None and model in (event.ref, event.ref.partition(":")[0]))
    )


def _document(event: EventRow) -> dict[str, Any]:
    return {
        "number": event.number, "at": event.at, "kind": event.kind, "ref": event.ref,
        "text": event.text, "detail": event.detail,
    }  # fmt: skip
