"""`engines`: which engines are here, what each sees, and which one is used."""

from __future__ import annotations

import click

from appliance.cli.output import cell, daemon_or_none, emit, find_paths, json_option, run, say, show, table
from appliance.errors import EngineError
from appliance.units import size


@click.group()
def engines() -> None:
    """Engines found here and the devices each sees."""


@engines.command("list")
@json_option
def list_engines(as_json: bool) -> None:
    """Every engine found, its devices, and the chosen one with the reason."""
    client = daemon_or_none()
    if client is not None:
        document = client.call("GET", "/api/engines", timeout_s=60)
    else:
        from appliance import settings
        from appliance.operations.machine.survey import survey

        document = run(survey(settings.load(find_paths().config_file))).to_json()
    if as_json:
        emit(document)
        return
    made = table("Engine", "Build", "Devices", "Note")
    for build in document["engines"]:
        devices = "; ".join(
            f"{device['name']} {device['description']} {size(device['total'])}"
            + (" (software)" if device["software"] else "")
            for device in build["devices"]
        )
        made.add_row(
            cell(build["kind"]), cell(build["build"]), cell(devices or "CPU"), cell(build["note"] or "")
        )
    show(made)
    if document["chosen"]:
        say(f"Used: {document['chosen']['build']} ({document['chosen']['reason']})")
    elif document["error"]:
        say(f"✖ {document['error']['message']}")
    if document["note"]:
        say(f"! {document['note']['detail']}\n  Do: {document['note']['todo']}")


@engines.command()
@click.argument("backend", type=click.Choice(["cuda", "rocm", "vulkan"]))
def install(backend: str) -> None:
    """Fetch an engine build for a GPU."""
    raise EngineError(
        f"This version can't fetch a {backend} engine by itself yet.",
        cause="The download of engine builds comes with a later version.",
        hint="Put a llama-server built for this GPU (llama.cpp releases, brew, winget) on PATH, or name it: "
        "`appliance config set engine.llama_server FILE`. `appliance engines list` shows its devices.",
    )
