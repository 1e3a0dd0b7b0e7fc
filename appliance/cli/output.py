"""What the commands share: documents or text on stdout, and the way to a daemon or around it."""

from __future__ import annotations

import json
import math
import shutil
import signal
import sys
import textwrap
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from appliance import paths as _paths
from appliance.cli.ends import OutputFailed
from appliance.client import Client
from appliance.errors import NoDaemon
from appliance.text import clean_line

if TYPE_CHECKING:
    from rich.table import Table

    from appliance.operations.models import Library

T = TypeVar("T")
WIDE = 120
"""Characters in a line where the output is no terminal and `COLUMNS` says nothing else."""
_LABEL = 11

json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")


def find_paths() -> _paths.Paths:
    return _paths.find()


def daemon() -> Client:
    """The running daemon. Raises NoDaemon."""
    return Client.connect(find_paths())


def daemon_or_none() -> Client | None:
    """The running daemon, for commands that also work without one."""
    try:
        return daemon()
    except NoDaemon:
        return None


def library() -> Library:
    """Catalog, store and settings, opened in this process."""
    from appliance import settings
    from appliance.operations.models import Library

    found = find_paths().make()
    return Library.open(found, settings.load(found.config_file))


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run async work to its end; Ctrl-C or SIGTERM cancels it and waits until it has cleaned up."""

    import asyncio  # a plan of a file for a described machine does without

    async def stoppable() -> T:
        task = asyncio.current_task()
        if sys.platform != "win32" and task is not None:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await work

    try:
        return asyncio.run(stoppable())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def _write(text: str) -> None:
    try:
        click.echo(text)
    except OSError as error:
        raise OutputFailed(error) from None


def emit(document: Mapping[str, Any]) -> None:
    """One document on stdout. A number that JSON lacks (infinity, not a number) is null."""
    try:
        text = json.dumps(document, ensure_ascii=False, allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(document), ensure_ascii=False, allow_nan=False)
    _write(text)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


def say(text: str = "") -> None:
    """A line for the person."""
    _write(text)


def say_wrapped(text: str, lead: str = "") -> None:
    """Sentences, wrapped at words; `lead` stands before the first line and is as wide before the others."""
    for line in textwrap.wrap(
        text, max(width(), 20), initial_indent=lead, subsequent_indent=" " * len(lead), break_on_hyphens=False
    ):
        say(line)


def say_of(label: str, text: str) -> None:
    """A labelled text, wrapped at words below itself."""
    lines = textwrap.wrap(text, max(20, width() - _LABEL - 2), break_on_hyphens=False) or [""]
    for number, line in enumerate(lines):
        say(f"  {'' if number else label:<{_LABEL}}{line}")


def width() -> int:
    """Characters in a line of stdout."""
    columns = shutil.get_terminal_size((WIDE, 24)).columns
    return columns if sys.stdout.isatty() else min(columns, WIDE)


def remark(text: str) -> None:
    """Something for the person, kept out of what a script reads."""
    click.echo(text, err=True)


def table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    """A plain table; columns in `right` are numbers."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return made


def show(made: Table) -> None:
    """Print a table; its cells hold foreign text, so markup is off."""
    from rich.console import Console

    try:
        Console(markup=False, highlight=False, width=width(), soft_wrap=False).print(made)
    except OSError as error:
        raise OutputFailed(error) from None


def cell(value: object) -> str:
    """A cell: unknown is n/a, foreign text is cleaned."""
    return "n/a" if value is None else clean_line(str(value), 120)
