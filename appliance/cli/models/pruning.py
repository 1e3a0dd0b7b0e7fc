"""`models prune`: what can go, what that frees, and the removal of what was asked for."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from appliance.cli.output import cell, daemon_or_none, emit, json_option, library, remark, say, show, table
from appliance.client import Client
from appliance.errors import UsageError
from appliance.units import parse_duration, size

if TYPE_CHECKING:
    from appliance.operations.models import Library
    from appliance.store import Pruned

UNUSED_S = 30 * 86_400.0
"""What the list without a selection calls unused."""
_FLAGS = {
    "--partials": ("partial", "damaged"),
    "--quarantine": ("quarantined",),
    "--unused 30d": ("unused",),
    "--private": ("prompt",),
    "always": ("lock", "empty"),
}
_ASKED = {
    "damaged": "damaged models, of which a repair would fetch only what differs",
    "quarantined": "quarantined files",
    "unused": "unused models",
}
"""What can't be had back for nothing, in the plural."""


def _age(_: click.Context, __: click.Parameter, value: str | None) -> float | None:
    if value is None:
        return None
    try:
        return parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error).replace("500ms, 8s, 30m or 2h", "12h or 30d")) from None


@click.command()
@click.option("--partials", is_flag=True, help="Unfinished downloads, and damaged models.")
@click.option("--quarantine", is_flag=True, help="Files that failed their check.")
@click.option("--unused", callback=_age, metavar="AGE", help="Models not loaded for so long, like 30d.")
@click.option("--private", is_flag=True, help="Saved prompts: text of requests.")
@click.option("--dry-run", is_flag=True, help="Only list.")
@click.option("--yes", is_flag=True, help="Don't ask.")
@json_option
def prune(
    partials: bool,
    quarantine: bool,
    unused: float | None,
    private: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Remove partial, quarantined and unused files, and saved prompts. Without a selection: list what each
    flag would free.

    Quarantined files and models, damaged ones too, go after a question only, or with --yes. What is being
    fetched, loaded or named in the settings stays, and so do files of yours: those used by reference, and any
    that lie among the models. Stale locks and empty folders go in any case. With --private, what engines hold
    now is not saved when they stop, either.

    With --json: {"dry_run", "items": [{"kind", "path", "size", "about"}], "freed", "by_kind",
    "engines_forget"}, sizes in bytes. `kind` is partial, damaged, quarantined, unused, prompt, lock or empty;
    `engines_forget` is true when a daemon runs and won't save what its engines hold now.
    """
    client, shelf = daemon_or_none(), library()
    keep = _keep(client, shelf)
    nothing_said = not partials and not quarantine and unused is None and not private

    def work(really: bool) -> tuple[Pruned, ...]:
        prompts = _prompts(client, shelf, really) if private or nothing_said else ()
        return prompts + shelf.store.prune(
            partials=partials or nothing_said,
            quarantine=quarantine or nothing_said,
            unused_s=UNUSED_S if nothing_said else unused,
            dry_run=not really,
            keep=keep,
        )

    dry = dry_run or nothing_said
    items = work(really=False)
    if not dry:
        _ask(items, yes)
        items = work(really=True)
    _say_what_stays(shelf, items)
    forget = private and not dry and client is not None
    if as_json:
        from appliance.operations.upkeep import pruned_json

        emit(pruned_json(items, dry_run=dry) | {"engines_forget": forget})
    elif nothing_said:
        _show_flags(items)
    elif items or not forget:
        _show(items, dry)
    if forget and not as_json:
        say("What engines hold now will not be saved when they stop.")


def _prompts(client: Client | None, shelf: Library, really: bool) -> tuple[Pruned, ...]:
    """Saved prompts; really: they have gone, by the daemon's hand when one runs."""
    from appliance.operations.upkeep import forget_prompts, saved_prompts

    found = saved_prompts(shelf)
    if really and client is not None:
        client.call("DELETE", "/api/prompts")
    elif really:
        forget_prompts(shelf)
    return found


def _keep(client: Client | None, shelf: Library) -> frozenset[str]:
    from appliance.operations.upkeep import wanted_refs

    loaded = set[str]()
    if client is not None:
        loaded = {engine.model for engine in client.status().engines if engine.model is not None}
    return wanted_refs(shelf) | loaded


def _ask(items: Sequence[Pruned], yes: bool) -> None:
    asked = [item for item in items if item.kind in _ASKED]
    if yes or not asked:
        return
    if not sys.stdin.isatty():
        counts = [(sum(item.kind == kind for item in asked), words) for kind, words in _ASKED.items()]
        raise UsageError(
            f"This would remove {'; '.join(f'{count} {words}' for count, words in counts if count)}.",
            cause="There is no terminal to ask at.",
            hint="Look with --dry-run, then say --yes.",
        )
    for item in asked:
        click.echo(f"{item.kind}: {cell(item.about)} ({size(item.size)})", err=True)
    freed = size(sum(item.size for item in items))
    if not click.confirm(f"Remove {len(asked)} of them and free {freed}?", err=True):
        raise click.exceptions.Exit(1)


def _say_what_stays(shelf: Library, items: Sequence[Pruned]) -> None:
    """Of the user's own files only those beside something that goes."""
    folders = {folder for item in items for folder in (item.path, item.path.parent)}
    for path in shelf.store.strangers():
        if path.parent in folders:
            remark(f"{cell(path)} is not of this program, so it stays.")


def _show_flags(items: Sequence[Pruned]) -> None:
    if not items:
        say("Nothing to remove.")
        return
    _list(items)
    say()
    made = table("Flag", "Items", "Would free", right=("Items", "Would free"))
    for flag, kinds in _FLAGS.items():
        these = [item for item in items if item.kind in kinds]
        made.add_row(flag, str(len(these)), size(sum(item.size for item in these)))
    show(made)


def _show(items: Sequence[Pruned], dry: bool) -> None:
    if not items:
        say("Nothing to remove.")
        return
    _list(items)
    freed = size(sum(item.size for item in items))
    say(f"{freed} would be freed." if dry else f"{freed} freed.")


def _list(items: Sequence[Pruned]) -> None:
    made = table("Kind", "Frees", "What", right=("Frees",))
    for item in items:
        made.add_row(item.kind, size(item.size), cell(item.about))
    show(made)
