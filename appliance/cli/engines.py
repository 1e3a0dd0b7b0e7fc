"""`engines`: which engines are here, what each sees, which one is used; builds installed, chosen, removed."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any

import click

from appliance.cli.output import (
    cell,
    daemon_or_none,
    emit,
    find_paths,
    json_option,
    remark,
    run,
    say,
    say_wrapped,
    show,
    table,
)
from appliance.cli.progress import LOOK_S, Bar, figures
from appliance.errors import EngineError
from appliance.text import clean_line
from appliance.units import size

if TYPE_CHECKING:
    from appliance.client import Client
    from appliance.engines.builds.fetch import Step
    from appliance.paths import Paths
    from appliance.settings import Settings

Document = Mapping[str, Any]
CHANGE_S = 600.0
"""For what may load the test model first."""
LIST_S = 60.0


@click.group()
def engines() -> None:
    """Engines found here and the devices each sees."""


@engines.command("list")
@json_option
def list_engines(as_json: bool) -> None:
    """Every engine found, its build, date and devices, and the chosen one with the reason."""
    client = daemon_or_none()
    if client is not None:
        document: Document = client.call("GET", "/api/engines", timeout_s=LIST_S)
    else:
        from appliance.operations.engines import listing

        document = run(listing(*_here()))
    if as_json:
        emit(document)
        return
    made = table("Name", "Build", "Date", "Devices", "State")
    for build in document["engines"]:
        made.add_row(
            cell(build["name"]), cell(build["build"]), _date(build), cell(_devices(build)), _state(build)
        )
    show(made)
    for build in document["engines"]:
        if build["note"]:
            say_wrapped(f"{clean_line(build['name'])}: {clean_line(build['note'], 1_000)}", "! ")
    _say_chosen(document)


@engines.command()
@click.argument("backend", type=click.Choice(["cuda", "rocm", "vulkan"]))
@click.option(
    "--source", metavar="WHERE", help="An index, a project page, URL.whl#sha256=HASH, or a local wheel."
)
@json_option
def install(backend: str, source: str | None, as_json: bool) -> None:
    """Fetch an engine build for a GPU, prove its hash, and load a test model with it.

    From the index of xllamacpp's publisher, unless --source names another place. The hash is recorded: a file
    of the same name with other bytes is refused from then on.
    """
    client = daemon_or_none()
    try:
        document = (
            run(_install_here(backend, source)) if client is None else _through(client, backend, source)
        )
    except KeyboardInterrupt:
        remark("Nothing new is used.")
        raise
    if as_json:
        emit(document)
        return
    for note in document["notes"]:
        say_wrapped(clean_line(note), "! ")
    tested, where = document["installed"]["tested"], document["installed"]
    say(f"{clean_line(document['build'])} {'is installed' if document['fresh'] else 'was here already'}: "
        f"{clean_line(document['name'])}")  # fmt: skip
    say(f"  From:   {clean_line(where['url'])}")
    say(f"  SHA-256 {where['sha256']} (recorded as its pin)")
    say(f"  Test:   a model was loaded on {clean_line(tested['device'])} and yielded a token")
    _say_in_force(document, client)
    if document["chosen"] and document["chosen"]["name"] != document["name"]:
        say_wrapped(f"To use it all the same: `appliance engines use {document['name']}`.")


@engines.command()
@click.argument("name")
@json_option
def use(name: str, as_json: bool) -> None:
    """Use the build NAME from now on; `auto` leaves the choice to the appliance."""
    _changed("use", {"name": name}, as_json)


@engines.command()
@json_option
def rollback(as_json: bool) -> None:
    """Use the build that was used before."""
    _changed("rollback", {}, as_json)


@engines.command()
@click.argument("name")
@click.option("--forget", is_flag=True, help="Forget the recorded hash of its file, too.")
@json_option
def rm(name: str, forget: bool, as_json: bool) -> None:
    """Remove an installed build."""
    client = daemon_or_none()
    if client is not None:
        from urllib.parse import quote

        path = f"/api/engines/{quote(name, safe='')}" + ("?forget=1" if forget else "")
        document: Document = client.call("DELETE", path, timeout_s=LIST_S)
    else:
        from appliance.operations.engines import remove

        document = run(remove(*_here(), name, forget=forget))
    if as_json:
        emit(document)
        return
    say(f"{clean_line(name)} is removed." + (" Its recorded hash is forgotten." if forget else ""))
    _say_in_force(document, None)


def _here() -> tuple[Settings, Paths]:
    from appliance import settings

    paths = find_paths().make()
    return settings.load(paths.config_file), paths


def _changed(what: str, body: dict[str, str], as_json: bool) -> None:
    client = daemon_or_none()
    if client is not None:
        document: Document = client.call("POST", f"/api/engines/{what}", body, timeout_s=CHANGE_S)
    else:
        document = run(_change_here(what, body))
    if as_json:
        emit(document)
        return
    say(f"Use: {clean_line(document['use'])}")
    _say_in_force(document, client)


def _change_here(what: str, body: dict[str, str]) -> Coroutine[Any, Any, Document]:
    from appliance.operations import engines as operations

    return operations.use(*_here(), body["name"]) if what == "use" else operations.rollback(*_here())


async def _install_here(backend: str, source: str | None) -> Document:
    from appliance.operations.engines import install as work

    with StepBar() as bar:
        return await work(*_here(), backend, source, bar.of_step)


def _through(client: Client, backend: str, source: str | None) -> Document:
    """The daemon installs; Ctrl-C ends it there, unless it was under way before."""
    from pathlib import Path

    if source is not None and "://" not in source:
        source = str(Path(source).expanduser().absolute())  # the daemon may run in another folder
    path = "/api/engines/install"
    joined = client.call("GET", path)["state"] == "running"
    client.call("POST", path, {"backend": backend, "source": source})
    try:
        return run(_follow(client, path))
    except KeyboardInterrupt:
        if not joined:
            client.call("DELETE", path, timeout_s=LIST_S)
        raise


async def _follow(client: Client, path: str) -> Document:
    from appliance.client.transport import error_of

    with StepBar() as bar:
        while True:
            row = await asyncio.to_thread(client.call, "GET", path)
            if row["state"] == "done":
                return dict(row["result"])
            if row["state"] == "failed":
                raise error_of(row["error"], 500)
            if row["state"] != "running":
                raise EngineError("The install was cancelled.", hint="Install again.")
            bar.of_row(row["step"])
            await asyncio.sleep(LOOK_S)


class StepBar(Bar):
    """Where an install stands."""

    def of_step(self, step: Step) -> None:
        """In this process."""
        self._told(step.phase, step.what, step.done, step.total, step.rate)

    def of_row(self, row: Mapping[str, Any]) -> None:
        """In the daemon."""
        self._told(row["phase"], row["what"], row["done"], row["total"], row["rate"])

    def _told(self, phase: str, what: str, done: int | None, total: int | None, rate: float | None) -> None:
        left = (total - done) / rate if rate and total is not None and done is not None else None
        said = figures(phase, done, total, rate, left, True, None) if done is not None else ()
        self._show(what, phase, done, total, said)


def _date(build: Document) -> str:
    if build["date"] is None:
        return "n/a"
    return f"about {cell(build['date'])}" if build["date_about"] else cell(build["date"])


def _devices(build: Document) -> str:
    if not build["usable"]:
        return "n/a"
    found = "; ".join(
        f"{device['name']} {device['description']} {size(device['total'])}"
        + (" (software)" if device["software"] else "")
        for device in build["devices"]
    )
    return found or "CPU"


def _state(build: Document) -> str:
    words = [
        word
        for word, is_so in (
            ("used", build["chosen"]),
            ("chosen by you", build["in_use"]),
            ("before", build["before"]),
            ("installed", build["installed"] is not None),
            ("can't be used", not build["usable"]),
            ("too old", build["old"]),
        )
        if is_so
    ]
    return ", ".join(words)


def _say_chosen(document: Document) -> None:
    if document["chosen"]:
        say_wrapped(
            f"{clean_line(document['chosen']['build'])} ({clean_line(document['chosen']['reason'], 1_000)})",
            "Used: ",
        )
    elif document["error"]:
        say(f"✖ {clean_line(document['error']['message'])}")
        for label, key in (("Why", "cause"), ("Do", "hint")):
            if document["error"][key]:
                say_wrapped(clean_line(document["error"][key], 1_000), f"  {label}: ")
    if document["note"]:
        say_wrapped(clean_line(document["note"]["detail"], 1_000), "! ")
        say_wrapped(clean_line(document["note"]["todo"]), "  Do: ")


def _say_in_force(document: Document, client: Client | None) -> None:
    _say_chosen(document)
    if client is not None:
        say_wrapped(
            "A model that is served now keeps its engine until a restart: press r in `appliance`, or "
            "POST /api/engine/restart."
        )
