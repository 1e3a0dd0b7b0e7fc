"""`models verify|repair|rm`: look after what is here. `models prune` is in `pruning.py`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from appliance.cli.output import (
    cell,
    daemon_or_none,
    emit,
    find_paths,
    json_option,
    library,
    remark,
    run,
    say,
    show,
    table,
)
from appliance.cli.progress import Bar, DownloadBar
from appliance.client import Client
from appliance.errors import ModelError, UnknownModel, UsageError
from appliance.text import clean_line
from appliance.units import duration, size

if TYPE_CHECKING:
    from appliance.operations.models import Library
    from appliance.operations.upkeep import Checked


@click.command()
@click.argument("models", nargs=-1, metavar="[MODEL]...")
@click.option("--all", "everything", is_flag=True, help="Every model that is on this disk.")
@json_option
def verify(models: tuple[str, ...], everything: bool, as_json: bool) -> None:
    """Hash models' files again and compare with their pins.

    Says of a damaged file what is wrong with it, and goes on with the others. Exits 4 when any is damaged or
    missing.

    What was damaged stays so until it is repaired or removed, and counts each time.

    With --json and one MODEL: {"model", "verified": true, "bytes", "seconds", "unrecorded"}, `unrecorded`
    being why the result could not be written down or null; or {"model", "verified":
    false, "error", "damage": [{"file", "kind", "text", "ranges", "chunks", "of_chunks", "action", "kept"}]}.
    Else {"models": [one such object each], "verified": N, "damaged": N}.
    """
    if bool(models) == everything:
        raise UsageError("Name the models to verify, or say --all.", hint="appliance models verify --all")
    client, shelf = daemon_or_none(), library()
    found = _verify_all(client, shelf, models, everything)
    bad = [item for item in found if item.error is not None]
    if as_json:
        documents = [item.to_json() for item in found]
        many = {"models": documents, "verified": len(found) - len(bad), "damaged": len(bad)}
        emit(documents[0] if len(models) == 1 else many)
    elif len(found) == 1 and not bad:
        say(f"{found[0].model} matches its SHA-256 ({_took(found[0])}).")
    elif len(found) != 1:
        _show(found)
    if bad:
        codes = {item.error.exit_code for item in bad if item.error is not None}
        raise click.exceptions.Exit(ModelError.exit_code if ModelError.exit_code in codes else max(codes))


def _verify_all(
    client: Client | None, shelf: Library, models: tuple[str, ...], everything: bool
) -> list[Checked]:
    from appliance.operations import upkeep

    refs = [upkeep.checkable(shelf, name) for name in models]  # a wrong name ends it before hours of work
    wanted = upkeep.recorded_refs(shelf) if everything else refs
    loaded = _loaded(client)
    found = []
    for ref in wanted:
        name = ref if isinstance(ref, str) else ref.ref
        if client is not None and name in loaded:
            item = _through(client, name)
        else:
            with Bar() as bar:
                item = run(upkeep.verify_one(shelf, ref, bar.update))
        found.append(item)
        if item.error is not None:
            remark(f"✖ {item.error}")
        if item.unrecorded is not None:
            remark(f"That {name} is whole could not be written down: {item.unrecorded}")
    return found


def _loaded(client: Client | None) -> frozenset[str]:
    """What the daemon serves: it has to stop that when it is damaged, so it does the check."""
    if client is None:
        return frozenset()
    idle = ("absent", "failed")
    engines = client.status().engines
    return frozenset(one.model for one in engines if one.model is not None and one.state not in idle)


def _through(client: Client, ref: str) -> Checked:
    from appliance.operations.upkeep import Checked

    remark(f"verifying {ref}, which is loaded")
    try:
        done = client.verify(ref)
    except ModelError as error:
        return Checked(ref, error)
    return Checked(ref, None, done.get("bytes"), done.get("seconds"))


def _took(item: Checked) -> str:
    return f"{size(item.n_bytes)} in {duration(item.seconds)}"


def _show(found: list[Checked]) -> None:
    if not found:
        say("No model is here, so there was nothing to verify.")
        return
    made = table("Model", "Result", "Took")
    for item in found:
        error = item.error
        if error is None:
            made.add_row(cell(item.model), "verified", _took(item))
        else:
            made.add_row(cell(item.model), cell(error.message), "")
    show(made)


@click.command()
@click.argument("model")
@json_option
def repair(model: str, as_json: bool) -> None:
    """Verify a model and fetch again only what differs.

    With --json: {"model", "repaired", "fetched", "size", "damage"}; `repaired` is false when it was whole,
    `fetched` and `size` are bytes, `damage` is as for `verify`. While a daemon runs, it does the work.
    """
    client = daemon_or_none()
    done = _repair_through(client, model) if client is not None else _repair_here(model)
    if as_json:
        emit(done)
        return
    for item in done["damage"] or ():
        remark(clean_line(item["text"], 400))
        if item["action"] == "left" and item["kept"] and not _is_ours(item["kept"]):
            remark(f"Your file {clean_line(item['kept'])} stays as it is; the store has its own now.")
    if not done["repaired"]:
        say(f"{done['model']} is whole: nothing was damaged.")
        return
    of = "" if done["size"] is None else f", {size(done['size'])} in all"
    say(f"{done['model']} is whole again: {size(done['fetched'])} fetched{of}.")


def _is_ours(path: str) -> bool:
    """In the store, where a repair replaces it."""
    return Path(path).is_relative_to(find_paths().models)


def _repair_here(model: str) -> dict[str, Any]:
    from appliance.operations import upkeep

    async def work() -> dict[str, Any]:
        with Bar() as bar:
            return upkeep.repaired_json(await upkeep.repair(shelf, model, bar.update))

    shelf = library()
    return run(work())


def _repair_through(client: Client, model: str) -> dict[str, Any]:
    async def work() -> dict[str, Any]:
        with DownloadBar() as bar:
            row = await bar.follow(client, started.id)
            if started.how == "joined" and row.mended is None:  # that was a pull, which proves less
                row = await bar.follow(client, (await asyncio.to_thread(client.start_repair, model)).id)
        return {
            "model": row.ref,
            "repaired": bool(row.fetched) if row.mended is None else row.mended,
            "fetched": row.fetched,
            "size": row.total,
            "damage": [dict(item) for item in row.damage or ()],
        }

    started = client.start_repair(model)
    return run(work())


@click.command()
@click.argument("model")
@click.option("--force", is_flag=True, help="Also when it is loaded or being fetched: that ends first.")
@json_option
def rm(model: str, force: bool, as_json: bool) -> None:
    """Delete a model's files. Refused while it is loaded.

    A file of yours that is used by reference stays. With --json: {"model", "freed"}, bytes.
    """
    client = daemon_or_none()
    yours = _references(model)
    freed: int | None
    freed = client.remove(model, force=force).get("freed") if client else library().remove(model)
    if as_json:
        emit({"model": model, "freed": freed})
        return
    say(f"Removed {model}: {size(freed)} freed.")
    for path in yours:
        say(f"Your file {clean_line(path)} stays.")


def _references(model: str) -> tuple[str, ...]:
    """The user's own files behind a model."""
    shelf = library()
    try:
        stored = shelf.store.find(shelf.removable(model))
    except UnknownModel:
        return ()  # the removal says so
    return tuple(str(file.path) for file in stored.files if file.referenced) if stored else ()
