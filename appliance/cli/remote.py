"""`remote add|list|test|rm`: endpoints that may answer instead of this machine."""

from __future__ import annotations

from typing import Any

import click

from appliance.cli.output import cell, daemon_or_none, emit, find_paths, json_option, run, say, show, table
from appliance.errors import UsageError


@click.group()
def remote() -> None:
    """Endpoints that may answer instead of this machine."""


@remote.command()
@click.argument("name")
@click.argument("url")
@click.option(
    "--api-key-env", default="", metavar="VAR", help="The variable that holds the key (never the key)."
)
@click.option(
    "--model", "pairs", multiple=True, metavar="LOCAL=REMOTE", help="Which remote model answers for which."
)
@click.option("--kind", type=click.Choice(["vllm", "openai"]), default="vllm", show_default=True)
@json_option
def add(name: str, url: str, api_key_env: str, pairs: tuple[str, ...], kind: str, as_json: bool) -> None:
    """Add the remote NAME at URL (ending in /v1)."""
    models = dict(_pair(pair) for pair in pairs)
    client = daemon_or_none()
    document: dict[str, Any]
    if client is not None:
        document = client.add_remote(name, url, kind=kind, api_key_env=api_key_env or None, models=models)
    else:
        from appliance.operations import config

        file = find_paths().make().config_file
        added = config.add_remote(file, name, url, kind=kind, api_key_env=api_key_env, models=models)
        document = added.model_dump(mode="json")
    if as_json:
        emit(document)
        return
    say(f"Remote {name} is configured. `appliance remote test {name}` asks it.")
    if not models:
        say("No model is mapped, so it answers only for models that it serves under the same name.")


@remote.command("list")
@json_option
def list_remotes(as_json: bool) -> None:
    """The remotes and, while a daemon runs, how each does."""
    client = daemon_or_none()
    if client is not None:
        rows = client.call("GET", "/api/remotes")["remotes"]
    else:
        from appliance import settings
        from appliance.operations.remote import rows_of

        rows = rows_of(settings.load(find_paths().config_file))
    if as_json:
        emit({"remotes": rows})
        return
    made = table("Remote", "Kind", "URL", "State", "Models", "Error")
    for row in rows:
        names = row.get("mapped") or {}
        mapped = ", ".join(f"{local}={theirs}" for local, theirs in names.items())
        made.add_row(
            cell(row["name"]),
            cell(row["kind"]),
            cell(row["url"]),
            cell(row["state"]),
            cell(mapped),
            cell(row.get("error") or ""),
        )
    show(made) if rows else say("No remote is configured: nothing can leave this machine.")


@remote.command()
@click.argument("name")
@json_option
@click.pass_context
def test(ctx: click.Context, name: str, as_json: bool) -> None:
    """Ask the remote NAME now: does it answer, with our key, and what does it serve."""
    client = daemon_or_none()
    if client is not None:
        document = client.call("POST", f"/api/remotes/{name}/test", {}, timeout_s=30)
    else:
        from appliance import settings
        from appliance.operations.remote import probe

        document = run(probe(settings.load(find_paths().config_file), name))
    if as_json:
        emit(document)
    else:
        latency = cell(document.get("latency_ms"))
        say(f"{name}: {document['state']} · version {cell(document.get('version'))} · {latency} ms")
        for model in document.get("models") or []:
            say(f"  serves {cell(model['id'])} ({cell(model['max_model_len'])} tokens)")
        if document.get("error"):
            say(f"  ✖ {cell(document['error'])}")
    if document["state"] != "up":
        ctx.exit(1)


@remote.command()
@click.argument("name")
@json_option
def rm(name: str, as_json: bool) -> None:
    """Forget the remote NAME."""
    client = daemon_or_none()
    if client is not None:
        client.remove_remote(name)
    else:
        from appliance.operations import config

        config.remove_remote(find_paths().config_file, name)
    emit({"removed": name}) if as_json else say(f"Remote {name} is gone.")


def _pair(text: str) -> tuple[str, str]:
    local, mark, theirs = text.partition("=")
    if not (local and mark and theirs):
        raise UsageError(f"--model takes LOCAL=REMOTE, not {text!r}.")
    return local, theirs
