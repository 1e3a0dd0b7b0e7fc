"""`plan`: how a model would be split on this machine, and why, line by line."""

from __future__ import annotations

from typing import Any

import click

from appliance.cli.output import daemon_or_none, emit, json_option, library, run, say, show, table
from appliance.cli.wishes import ctx_option, kv_option, layers_option, parallel_option
from appliance.errors import DoesNotFit
from appliance.units import mib


@click.command()
@click.argument("model")
@ctx_option
@parallel_option
@kv_option
@layers_option
@json_option
@click.pass_context
def plan(
    click_ctx: click.Context,
    model: str,
    ctx: int | None,
    parallel: int | None,
    kv: str | None,
    gpu_layers: int | None,
    as_json: bool,
) -> None:
    """How MODEL (a name, or a GGUF file) would be split here, and why."""
    client = daemon_or_none()
    wishes = {"model": model, "ctx": ctx, "parallel": parallel, "kv": kv, "gpu_layers": gpu_layers}
    document = client.call("POST", "/api/plan", wishes, timeout_s=60) if client else run(_plan_here(wishes))
    if as_json:
        emit(document)
    else:
        render(document)
    if not document["fits"]:
        click_ctx.exit(DoesNotFit.exit_code)


def render(document: dict[str, Any]) -> None:
    """A plan for people."""
    layers = f"{document['gpu_layers']} of {document['n_layer'] + 1} layers on the GPU"
    say(f"{document['model']} ({document['arch']}) with {document['engine_build']}")
    say(
        f"{layers} · {document['parallel']} slots of {document['ctx']} tokens · KV {document['kv_type']} · "
        f"{'measured by the engine' if document.get('measured') else 'computed'} · "
        f"{'fits' if document['fits'] else 'DOES NOT FIT'}"
    )
    figures = ("model", "kv", "compute", "overhead", "reserve", "free", "spare")
    made = table("MiB", *figures, right=figures)
    for device in [*document["devices"], document["host"]]:
        made.add_row(device["name"], *(mib(device.get(figure)).removesuffix(" MiB") for figure in figures))
    show(made)
    for reason in document["reasons"]:
        say(f"- {reason['text'] if isinstance(reason, dict) else reason}")
    say("Flags: " + " ".join(document["flags"]))


async def _plan_here(body: dict[str, Any]) -> dict[str, Any]:
    from appliance.operations.plan import plan_by_name

    return (await plan_by_name(library(), body)).to_json()
