"""`plan`: how a model would be split on this machine or a described one, and why."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from appliance.cli.output import daemon_or_none, emit, find_paths, json_option, library, remark, run
from appliance.cli.plan_text import render
from appliance.cli.wishes import (
    cpu_moe_option,
    ctx_option,
    draft_option,
    kv_option,
    layers_option,
    parallel_option,
    profile_option,
    split_option,
    ubatch_option,
)
from appliance.errors import DoesNotFit
from appliance.text import clean_line

if TYPE_CHECKING:
    from pathlib import Path

    from appliance.operations.plans.question import Question

_ANSWER_S = 60
_FETCH_S = 600
_PATIENCE_S = 2.0
_REMOTE = ("hf:", "http:", "https:")


@click.command()
@click.argument("model")
@ctx_option
@parallel_option
@kv_option
@layers_option
@ubatch_option
@cpu_moe_option
@split_option
@profile_option
@draft_option
@click.option(
    "--gpu",
    multiple=True,
    metavar="SPEC",
    help="Plan for a machine with this GPU instead, like 8GiB, '24GiB,RTX 4090', 4GiB,free=2900MiB or "
    "16GiB,unified. May be repeated.",
)
@click.option("--ram", metavar="SIZE", help="... with so much RAM; alone: a machine without GPU.")
@click.option("--what-if", is_flag=True, help="Also a table of contexts and KV types.")
@click.option("--no-ask", is_flag=True, help="By formula alone: no engine is asked.")
@click.option(
    "--fetch-headers", is_flag=True, help="Of a family: get the headers that are not here (some MiB each)."
)
@json_option
@click.pass_context
def plan(click_ctx: click.Context, /, model: str, as_json: bool, no_ask: bool, **wishes: Any) -> None:
    """How MODEL would be split here, and why.

    MODEL is a name, a family (all its members are ranked), a GGUF file, hf:OWNER/REPO[@REV]/FILE or a web
    address; it need not be here. Exits 5 when it does not fit.
    """
    body = {"model": _where(model), "ask": not no_ask, **wishes, "gpu": list(wishes["gpu"])}
    if body["draft"]:
        body["draft"] = _where(body["draft"])
    document = _of_a_file(body) or _asked(body)
    emit(document) if as_json else render(document)
    if not document["fits"]:
        click_ctx.exit(DoesNotFit.exit_code)


def _where(name: str) -> str:
    """A file by its full path: a daemon works in a folder of its own."""
    from appliance.operations.files import file_or_name

    file = None if name.startswith(_REMOTE) else file_or_name(name)
    return name if file is None else str(file.absolute())


def _described(body: dict[str, Any]) -> bool:
    return bool(body["gpu"]) or body["ram"] is not None


def _of_a_file(body: dict[str, Any]) -> dict[str, Any] | None:
    """For a described machine and a file that is here, which takes no daemon; None for anything else."""
    if not _described(body):
        return None
    from appliance import settings
    from appliance.operations.plans import described_plan
    from appliance.operations.plans.question import question_of

    return described_plan.of_a_file(settings.load(find_paths().config_file), question_of(body))


def _asked(body: dict[str, Any]) -> dict[str, Any]:
    client = daemon_or_none()
    with _patience(body):
        if client is None:
            return run(_plan_here(body))
        limit = _FETCH_S if body["fetch_headers"] else _ANSWER_S
        return client.call("POST", "/api/plan", body, timeout_s=limit)


def _host(name: str) -> str:
    if name.startswith("hf:"):
        return "the Hub"
    try:
        return urlsplit(name).hostname or "the server"
    except ValueError:
        return "the server"


@contextlib.contextmanager
def _patience(body: dict[str, Any]) -> Iterator[None]:
    """Says what is waited for, when a server takes its time."""
    names = [name for name in (body["model"], body["draft"]) if name and name.startswith(_REMOTE)]
    hosts = [
        "the Hub" if name.startswith("hf:") else urlsplit(name).hostname or "the server" for name in names
    ]
    if body["fetch_headers"]:
        hosts.append("the Hub")
    text = f"Waiting for {clean_line(' and '.join(dict.fromkeys(hosts)), 120)} to send the model's header ..."
    timer = threading.Timer(_PATIENCE_S, remark, (text,))
    timer.daemon = True
    if hosts:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


async def _plan_here(body: dict[str, Any]) -> dict[str, Any]:
    if not _described(body):
        from appliance.operations.plans.question import path_of, question_of

        question = question_of(body)
        file = path_of(question)
        if file is not None:
            return await _of_a_file_here(file, question)
    from appliance.operations.plans.answer import answer

    return await answer(library(), body)


async def _of_a_file_here(file: Path, question: Question) -> dict[str, Any]:
    """The look at the machine, most of it in other processes, goes on while the rest is loaded."""
    import asyncio
    from importlib import import_module

    from appliance import settings
    from appliance.operations.machine.survey import survey
    from appliance.operations.plans.subject import of_file

    paths = find_paths().make()
    held, subject = settings.load(paths.config_file), await asyncio.to_thread(of_file, file)
    looking = asyncio.ensure_future(survey(held, paths=paths))
    here_plan = await asyncio.to_thread(import_module, "appliance.operations.plans.here_plan")
    found: dict[str, Any] = await here_plan.document_of(held, paths, subject, question, await looking)
    return found
