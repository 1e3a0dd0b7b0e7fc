"""`chat`: ask the served model line by line, and see which side answered."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from typing import Any
from urllib.parse import urlsplit

import click

from appliance.cli.ends import OutputFailed
from appliance.cli.output import daemon, remark
from appliance.errors import ApplianceError, EngineUnavailable, UnknownModel
from appliance.text import clean

TIMEOUT_S = 600.0
KEPT_MESSAGES = 40


@click.command()
@click.argument("model", required=False)
@click.option("--route", type=click.Choice(["auto", "local", "remote"]), help="Which side may answer.")
@click.option("--max-tokens", type=click.IntRange(1), help="Longest reply (default: the context).")
def chat(model: str | None, route: str | None, max_tokens: int | None) -> None:
    """Ask MODEL (or the served one). One question a line; an empty line or Ctrl-D ends it."""
    asked: dict[str, Any] = {"stream": True}
    asked |= {"model": model} if model is not None else {}
    asked |= {"max_tokens": max_tokens} if max_tokens is not None else {}
    url = daemon().url
    messages: list[dict[str, str]] = []
    interactive = sys.stdin.isatty()
    while True:
        if interactive:
            click.echo("> ", nl=False, err=True)
        line = sys.stdin.readline()
        if not line.strip():
            return
        messages.append({"role": "user", "content": line.strip()})
        reply, served = _ask(url, asked | {"messages": messages[-KEPT_MESSAGES:]}, route)
        messages.append({"role": "assistant", "content": reply})
        remark(f"[{served.get('route')} · {served.get('reason')} · {served.get('model')}]")


def _ask(url: str, body: dict[str, Any], route: str | None) -> tuple[str, dict[str, Any]]:
    """Stream one reply to stdout; its text and the `appliance` object. Raises EngineUnavailable."""
    headers = {"Content-Type": "application/json"} | ({"X-Appliance-Route": route} if route else {})
    parts = urlsplit(url)
    connection = HTTPConnection(parts.hostname or "127.0.0.1", parts.port, timeout=TIMEOUT_S)
    text: list[str] = []
    served: dict[str, Any] = {}
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body).encode(), headers)
        response = connection.getresponse()
        if response.status != 200:
            raise _failed(json.loads(response.read() or b"{}"), response.status)
        for chunk in _chunks(response):
            if "error" in chunk:
                raise _failed(chunk, 502)
            served = chunk.get("appliance") or served
            text += [_shown(choice) for choice in chunk.get("choices", [])]
        click.echo()
    except OSError as error:
        raise EngineUnavailable("The connection to the daemon broke.", cause=str(error)) from None
    finally:
        connection.close()
    return "".join(text), served


def _shown(choice: dict[str, Any]) -> str:
    piece = clean(str(choice.get("delta", {}).get("content") or ""))
    try:
        click.echo(piece, nl=False)
    except OSError as error:
        raise OutputFailed(error) from None
    return piece


def _chunks(response: HTTPResponse) -> Iterator[dict[str, Any]]:
    while line := response.readline():
        if line.startswith(b"data: ") and not line.startswith(b"data: [DONE]"):
            found = json.loads(line[6:])
            if isinstance(found, dict):
                yield found


def _failed(document: dict[str, Any], status: int) -> ApplianceError:
    """The gateway's error; an unknown model keeps the exit code of one."""
    error = document.get("error") or {}
    message = clean(str(error.get("message") if isinstance(error, dict) else error))
    if status == 404:
        return UnknownModel(message, hint="`appliance models list` shows what there is.")
    return EngineUnavailable("No answer.", cause=message, hint="`appliance status` says how it stands.")
