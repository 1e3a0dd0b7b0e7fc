"""A group whose commands are imported only when they are called: `--version` stays quick."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click

Table = Mapping[str, tuple[str, str, str]]
"""Name -> (module, function, one line of help). A module that begins with a dot is of the group's package."""


class LazyGroup(click.Group):
    """`table` holds its commands, `package` is where modules that begin with a dot are."""

    def __init__(self, *arguments: Any, table: Table, package: str | None = None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._table = table
        self._package = package

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._table:
            return None
        module, function, _ = self._table[cmd_name]
        command = getattr(importlib.import_module(module, self._package), function)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in self._table.items()])
