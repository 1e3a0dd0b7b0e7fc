"""`models search|show`: find a model, look at it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import click

from appliance.cli.output import (
    cell,
    emit,
    json_option,
    library,
    remark,
    run,
    say,
    say_of,
    show,
    table,
)
from appliance.errors import ApplianceError
from appliance.text import clean_line
from appliance.units import size as size_text

_SHORT_HASH = 12


@click.command()
@click.argument("text", nargs=-1, required=True)
@click.option("--hub", is_flag=True, help="Look on the Hub, too (needs the network).")
@click.option(
    "--limit", type=click.IntRange(1, 100), default=20, show_default=True, help="Rows of each kind."
)
@json_option
def search(text: tuple[str, ...], hub: bool, limit: int, as_json: bool) -> None:
    """Find models by the words in id, name, family, use and quant.

    With --json: {"models": [ROW, ...], "hub_error": null or an error}. A row of the catalog has where
    ("catalog"), id, name, family, params, context, license, license_note, use, quants, size (bytes) and here
    (refs on this disk); one of the Hub has where ("hub"), repo, page, downloads, likes, gated, license,
    updated and listed_as (ids). A Hub that can't answer is an error only where the catalog had nothing.
    """
    from appliance.operations import catalog

    shelf, words = library(), " ".join(text)
    rows = run(catalog.search(shelf, words, limit=limit))
    if not as_json:
        _show_listed(rows, hub)  # at once: the Hub may take its time
    found, failed = list[dict[str, Any]](), None
    if hub:
        try:
            found = run(catalog.search_hub(shelf, words, limit=limit))
        except ApplianceError as error:
            if not rows:
                raise
            failed = error
    if as_json:
        emit({"models": rows + found, "hub_error": None if failed is None else failed.to_json()})
    elif failed is not None:
        parts = (failed.message, failed.cause, failed.hint)
        remark("Nothing of the Hub: " + " ".join(clean_line(part, 300) for part in parts if part))
    elif hub:
        say()
        _show_found(found) if found else say("Nothing on the Hub.")


@click.command("show")
@click.argument("model")
@click.option("--hub", is_flag=True, help="What its repositories hold now (needs the network).")
@json_option
def show_model(model: str, hub: bool, as_json: bool) -> None:
    """All that is known of a model: variants, pins, licence. MODEL may be hf:OWNER/REPO.

    With --json: id, name, family, params, context, unverified, license, license_note, restricted, accepted,
    use, notes, variants (ref, quant, pin, pin_host, size, state, path, source, files with name, role, size,
    sha256, part) and hub: null or a list of repositories (repo, page, commit, license, gated, downloads,
    likes, projectors and quants with quant, size, complete, pinnable, usable, files, add, ref, listed,
    same_bytes). add is null for what can't be added.
    """
    from appliance.operations import catalog

    document = run(catalog.show(library(), model, hub=hub))
    if as_json:
        emit(document)
        return
    if document["id"] is not None:
        _show_model(document)
    for repo in document["hub"] or ():
        if document["id"] is not None:
            say()
        _show_repository(repo)


def _show_listed(rows: Sequence[Mapping[str, Any]], hub: bool) -> None:
    if not rows:
        say("Nothing in the catalog." if hub else "Nothing in the catalog. --hub looks on the Hub.")
        return
    made = table("Model", "Size", "Use", "Quants", "", right=("Size",))
    for row in rows:
        here = {ref.rpartition(":")[2] for ref in row["here"]}
        quants = [f"{quant}*" if quant in here else quant for quant in row["quants"]]
        made.add_row(
            cell(row["id"]), size_text(row["size"]), " ".join(row["use"]), cell(" ".join(quants)),
            "!" if row["license_note"] else "",
        )  # fmt: skip
    show(made)
    if any(row["here"] for row in rows):
        say("* on this disk")
    if any(row["license_note"] for row in rows):
        say("! the licence has limits: appliance models show MODEL")


def _show_found(rows: Sequence[Mapping[str, Any]]) -> None:
    made = table("On the Hub", "Fetched", "Likes", "", right=("Fetched", "Likes"))
    for row in rows:
        marks = ("gated",) * row["gated"] + ("listed",) * bool(row["listed_as"])
        made.add_row(cell(row["repo"]), _short(row["downloads"]), _short(row["likes"]), " ".join(marks))
    show(made)
    say("What one holds: appliance models show hf:OWNER/REPO")


def _show_model(document: Mapping[str, Any]) -> None:
    say(f"{document['id']}  {clean_line(document['name'], 200)}")
    unsure = document["unverified"]
    for label, value in (
        ("family", document["family"]),
        ("parameters", _big(document["params"]) + (" (not confirmed)" if "params" in unsure else "")),
        (
            "context",
            f"{_count(document['context'])} tokens" + (" (not confirmed)" if "context" in unsure else ""),
        ),
        ("use", " ".join(document["use"])),
        ("license", document["license"] or "n/a"),
        ("limits", document["license_note"]),
        ("accepted", None if document["accepted"] is None else "yes" if document["accepted"] else "not yet"),
        ("notes", document["notes"]),
    ):
        if value:
            say_of(label, clean_line(str(value), 1_000))
    say()
    made = table("Variant", "Size", "State", "Pinned by", right=("Size",))
    for variant in document["variants"]:
        by = variant["pin"] + (f" ({variant['pin_host']})" if variant["pin_host"] else "")
        made.add_row(cell(variant["ref"]), size_text(variant["size"]), cell(variant["state"]), cell(by))
    show(made)
    for variant in document["variants"]:
        if variant["state"] == "missing":
            say(f"{cell(variant['ref'])} is not where it was: {clean_line(str(variant['path']), 300)}")
    for place in dict.fromkeys(_place(variant["source"]) for variant in document["variants"]):
        say(f"from {clean_line(place, 200)}")


def _show_repository(repo: Mapping[str, Any]) -> None:
    gated = "  gated: accept the terms on its page" if repo["gated"] else ""
    say(f"{repo['repo']}  {clean_line(repo['license'] or 'licence n/a', 80)}{gated}")
    say(f"  {repo['page']}")
    say(f"  commit {repo['commit']}")
    if not repo["quants"]:
        say("  It holds no GGUF model.")
        return
    _show_quants(repo["quants"])
    for file in repo["projectors"]:
        say(f"  projector: {file['name']}  {size_text(file['size'])}")
    if "ref" in repo["quants"][0]:
        say("Any of these can be pulled as ID:QUANT; its pin is what stands here now.")
        return
    usable = [quant["add"] for quant in repo["quants"] if quant["add"] and quant["pinnable"]]
    say(f"Take one: appliance models add {usable[0]}" if usable else "None of these can be added.")


def _show_quants(quants: Sequence[Mapping[str, Any]]) -> None:
    """One row each; where the quantisation does not tell it from the others, its first file does."""
    times = Counter(quant["quant"] for quant in quants)
    named = [quant["quant"] is None or times[quant["quant"]] > 1 for quant in quants]
    columns = ("Quant", "Size", "Files", "SHA-256", "Catalog") + (("File",) if any(named) else ())
    made = table(*columns, right=("Size", "Files"))
    for quant, by_name in zip(quants, named, strict=True):
        first = quant["files"][0]
        row = [
            cell(quant["quant"]), size_text(quant["size"]), str(len(quant["files"])),
            "n/a" if first["sha256"] is None else first["sha256"][:_SHORT_HASH], _standing(quant),
        ]  # fmt: skip
        made.add_row(*row, *([cell(first["name"]) if by_name else ""] if any(named) else []))
    show(made)


def _standing(quant: Mapping[str, Any]) -> str:
    if not quant["complete"]:
        return "parts are missing"
    if not quant["usable"]:
        return "name too long or odd"
    if not quant["pinnable"]:
        return "no hash stated"
    if not quant.get("listed"):
        return ""
    return {True: "listed", False: "listed, other bytes now", None: "listed from elsewhere"}[
        quant["same_bytes"]
    ]


def _place(source: Mapping[str, Any]) -> str:
    if source["kind"] == "hf":
        return f"hf:{source['repo']}@{source['revision'][:_SHORT_HASH]}"
    if source["kind"] == "wheel":
        return "wheel " + " ".join(f"{p['name']} {p['version']}" for p in source["packages"])
    return str(source.get("url") or source.get("path"))


def _count(value: int | None) -> str:
    return "n/a" if value is None else f"{value:,}".replace(",", " ")


def _short(value: int | None) -> str:
    """A count in at most five characters: `12k`, `3.4M`."""
    if value is None:
        return "n/a"
    for limit, unit in ((1_000_000, "M"), (1_000, "k")):
        if value >= limit:
            return f"{value / limit:.{int(value < 10 * limit)}f}{unit}"
    return str(value)


def _big(value: float | None) -> str:
    if value is None:
        return "n/a"
    return f"{value / 1e9:.3g} billion" if value >= 1e9 else f"{value / 1e6:.3g} million"
