"""`plan`: how a model would be split on this machine or a described one, and why."""

from __future__ import annotations

from typing import Any

import click

from appliance.cli.output import daemon_or_none, emit, json_option, library, run
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

_ANSWER_S = 60
_FETCH_S = 600


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
    client = daemon_or_none()
    if client is not None:
        limit = _FETCH_S if body["fetch_headers"] else _ANSWER_S
        document = client.call("POST", "/api/plan", body, timeout_s=limit)
    else:
        document = run(_plan_here(body))
    emit(document) if as_json else render(document)
    if not document["fits"]:
        click_ctx.exit(DoesNotFit.exit_code)


def _where(name: str) -> str:
    """A file by its full path: a daemon works in a folder of its own."""
    from appliance.operations.models import file_or_name

    file = None if name.startswith(("hf:", "http:", "https:")) else file_or_name(name)
    return name if file is None else str(file.absolute())


async def _plan_here(body: dict[str, Any]) -> dict[str, Any]:
    from appliance.operations.plans.answer import answer

    return await answer(library(), body)
