"""The group, and where each of its commands lives."""

from __future__ import annotations

import click

from appliance.cli.lazy import LazyGroup

COMMANDS = {
    "list": (".listing", "list_models", "What the catalog lists and what is here."),
    "search": (".finding", "search", "Find models in the catalog, and on the Hub."),
    "show": (".finding", "show_model", "All that is known of a model: variants, pins, licence."),
    "add": (".adding", "add", "Make an entry for a file of the Hub, an address or a path."),
    "pull": (".fetch", "pull", "Fetch a model and prove its hash. Ctrl-C keeps what has arrived."),
    "import": (".importing", "import_models", "Use models that other programs have, without a copy."),
    "load": (".resident", "load", "Load a model that is here, and make it the default."),
    "unload": (".resident", "unload", "Free the memory of a loaded model."),
    "restart": (".resident", "restart", "Load a model again, with what is free now."),
    "pin": (".resident", "pin", "Keep a model loaded once it is."),
    "unpin": (".resident", "unpin", "Let a pinned model make way for others again."),
    "verify": (".upkeep", "verify", "Hash models' files again and say what is damaged."),
    "repair": (".upkeep", "repair", "Verify a model and fetch again only what differs."),
    "prune": (".pruning", "prune", "Remove partial, quarantined and unused files; lists them first."),
    "rm": (".upkeep", "rm", "Delete a model's files. Refused while it is loaded."),
}


@click.group(cls=LazyGroup, table=COMMANDS, package=__package__)
def models() -> None:
    """List, find, fetch, load, check and remove models."""
