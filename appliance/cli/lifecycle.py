"""`down`, `status`, `env`: commands about a running daemon."""

from __future__ import annotations

import os
import time

import click

from appliance.cli.output import daemon, daemon_or_none, emit, find_paths, json_option, remark, say
from appliance.cli.status_text import NO_DAEMON, status_lines
from appliance.client import Client
from appliance.client.record import read as read_record
from appliance.errors import ApplianceError, NoDaemon
from appliance.processes import is_same

STOP_LIMIT_S = 30.0


@click.command()
@json_option
def down(as_json: bool) -> None:
    """Stop the daemon and its engine."""
    record = read_record(find_paths().daemon_file)
    client = Client.connect(find_paths())
    client.shutdown()
    deadline = time.monotonic() + STOP_LIMIT_S
    while is_same(record.pid, record.start_time, record.start_ticks):
        if time.monotonic() > deadline:
            raise ApplianceError(
                f"The daemon (pid {record.pid}) has not ended after {STOP_LIMIT_S:.0f} s.",
                hint=f"It is still stopping its engine; if it never ends: kill {record.pid}",
            )
        time.sleep(0.05)
    emit({"stopped": True, "pid": record.pid}) if as_json else say(f"Stopped (pid {record.pid}).")


@click.command()
@click.option("-w", "--watch", "watched", is_flag=True, help="Show it anew on each change until Ctrl-C.")
@json_option
@click.pass_context
def status(ctx: click.Context, as_json: bool, watched: bool) -> None:
    """What runs, how it does, and what to know.

    With --watch and --json, one document on a line for each change.
    """
    if watched:
        from appliance.cli.watching import watch

        ctx.exit(watch(find_paths(), as_json=as_json))
    try:
        snapshot = daemon().status()
    except NoDaemon as error:
        if not as_json:
            raise
        emit(NO_DAEMON)
        remark(f"✖ {error.message}")
        ctx.exit(error.exit_code)
    if as_json:
        emit(snapshot.raw)
        return
    for line in status_lines(snapshot):
        say(line)


@click.command()
@json_option
@click.option("--shell", type=click.Choice(["sh", "fish", "powershell"]), default="sh", show_default=True)
def env(as_json: bool, shell: str) -> None:
    """Lines that point scripts at the appliance: `eval "$(appliance env)"`."""
    client = daemon_or_none()
    if client is not None:
        url = client.url
    else:
        from appliance import settings

        server = settings.load(find_paths().config_file).server
        if server.port == 0:
            raise NoDaemon(
                "No daemon runs, and `server.port` is 0: its address is not known before it starts.",
                hint="Start it with: appliance up",
            )
        url = f"http://{server.host}:{server.port}"
        remark(f"No daemon runs now; these lines hold once it serves {url}.")
    values = {
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_KEY": "local",
        "NO_PROXY": _no_proxy(os.environ.get("NO_PROXY", "")),
    }
    if as_json:
        emit(values)
        return
    form = {"sh": "export {0}='{1}'", "fish": "set -gx {0} '{1}'", "powershell": "$env:{0} = '{1}'"}[shell]
    for name, value in values.items():
        say(form.format(name, value))


def _no_proxy(present: str) -> str:
    """The hosts that are already exempt, and loopback: a system proxy must not swallow it."""
    hosts = [host for host in present.replace("'", "").split(",") if host]
    return ",".join([*hosts, *(host for host in ("127.0.0.1", "localhost") if host not in hosts)])
