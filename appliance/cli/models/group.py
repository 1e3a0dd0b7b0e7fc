"""The group, and where each of its commands lives."""

from __future__ import annotations

import importlib

import click

COMMANDS = {
    "list": ("listing", "list_models", "What the catalog lists and what is here."),
    "search": ("finding", "search", "Find models in the catalog, and on the Hub."),
    "show": ("finding", "show_model", "All that is known of a model: variants, pins, licence."),
    "add": ("adding", "add", "Make an entry for a file of the Hub, an address or a path."),
    "pull": ("fetch", "pull", "Fetch a model and prove its hash. Ctrl-C keeps what has arrived."),
    "import": ("importing", "import_models", "Use models that other programs have, without a copy."),
    "verify": ("upkeep", "verify", "Hash models' files again and say what is damaged."),
    "repair": ("upkeep", "repair", "Verify a model and fetch again only what differs."),
    "prune": ("pruning", "prune", "Remove partial, quarantined and unused files; lists them first."),
    "rm": ("upkeep", "rm", "Delete a model's files. Refused while it is loaded."),
}
"""Name -> (module, function, one line of help). Modules are imported when their command is called."""


class _Group(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, function, _ = COMMANDS[cmd_name]
        command = getattr(importlib.import_module(f"appliance.cli.models.{module}"), function)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in COMMANDS.items()])


@click.group(cls=_Group)
def models() -> None:
    """List, find, fetch, check and remove models."""
