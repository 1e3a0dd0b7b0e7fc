"""`models search|show|add`: find a model, look at it, make an entry of the user's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from appliance.cli.output import cell, emit, json_option, library, remark, run, say, show, table
from appliance.text import clean, clean_line
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

    With --json: {"models": [ROW, ...]}. A row of the catalog has where ("catalog"), id, name, family,
    params, context, license, license_note, use, quants, size (bytes) and here (refs on this disk); one of the
    Hub has where ("hub"), repo, page, downloads, likes, gated, license, updated and listed_as (ids).
    """
    from appliance.operations import catalog

    rows = run(catalog.search(library(), " ".join(text), hub=hub, limit=limit))
    if as_json:
        emit({"models": rows})
        return
    listed = [row for row in rows if row["where"] == "catalog"]
    found = [row for row in rows if row["where"] == "hub"]
    if listed:
        _show_listed(listed)
    elif not hub:
        say("Nothing in the catalog. --hub looks on the Hub.")
    else:
        say("Nothing in the catalog.")
    if hub:
        say()
        _show_found(found) if found else say("Nothing on the Hub.")


@click.command("show")
@click.argument("model")
@click.option("--hub", is_flag=True, help="What its repositories hold now (needs the network).")
@json_option
def show_model(model: str, hub: bool, as_json: bool) -> None:
    """All that is known of a model: variants, pins, licence. MODEL may be hf:OWNER/REPO.

    With --json: id, name, family, params, context, unverified, license, license_note, restricted, accepted,
    use, notes, variants (ref, quant, pin, size, state, path, source, files with name, role, size, sha256,
    part) and hub: null or a list of repositories (repo, page, commit, license, gated, downloads, likes,
    projectors and quants with quant, size, complete, pinnable, files, add, ref, listed, same_bytes).
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


@click.command()
@click.argument("source")
@click.option("--id", "model_id", help="Name of the entry; default: made of the file's name.")
@click.option("--sha256", help="What the publisher states; needed when nobody else can be trusted for it.")
@click.option("--size", type=click.IntRange(min=1), help="Bytes, when the server does not tell.")
@click.option("--quant", help="Name of the quantisation; default: from the file.")
@json_option
def add(
    source: str, model_id: str | None, sha256: str | None, size: int | None, quant: str | None, as_json: bool
) -> None:
    """Make an entry for hf:OWNER/REPO[@REV]/FILE, a web address or a path. Only its header is read.

    With --json: ref, id, quant, pin, stated_by, size, source, files, added (false: it was there already),
    file (where the entry was written) and hints.
    """
    from appliance.cli.progress import Bar
    from appliance.operations import catalog

    with Bar() as bar:
        document = run(
            catalog.add(
                library(), source, model_id=model_id, sha256=sha256, size=size, quant=quant,
                on_progress=bar.update,
            )
        )  # fmt: skip
    if as_json:
        emit(document)
        return
    files = document["files"]
    say(f"{document['ref']}  {size_text(document['size'])}" + (f"  {len(files)} files" if files[1:] else ""))
    say(f"  SHA-256  {files[0]['sha256']}" + (" (first file)" if files[1:] else ""))
    say(f"  stated by {clean_line(document['stated_by'], 200)}")
    say(f"  written to {document['file']}" if document["added"] else "  It was there already, with this pin.")
    for hint in document["hints"]:
        say(f"  {clean(hint)}")
    remark(f"Next: appliance models pull {document['ref']}")


def _show_listed(rows: Sequence[Mapping[str, Any]]) -> None:
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
            say(f"  {label:<11}{clean_line(str(value), 300)}")
    say()
    made = table("Variant", "Size", "State", "Pinned by", right=("Size",))
    for variant in document["variants"]:
        made.add_row(cell(variant["ref"]), size_text(variant["size"]), cell(variant["state"]), variant["pin"])
    show(made)
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
    made = table("Quant", "Size", "Files", "SHA-256", "Catalog", right=("Size", "Files"))
    for quant in repo["quants"]:
        first = quant["files"][0]["sha256"]
        made.add_row(
            cell(quant["quant"]), size_text(quant["size"]), str(len(quant["files"])),
            "n/a" if first is None else first[:_SHORT_HASH], _standing(quant),
        )  # fmt: skip
    show(made)
    for file in repo["projectors"]:
        say(f"  projector: {file['name']}  {size_text(file['size'])}")
    if "ref" not in repo["quants"][0]:
        say(f"Take one: appliance models add {repo['quants'][0]['add']}")
    else:
        say("Any of these can be pulled as ID:QUANT; its pin is what stands here now.")


def _standing(quant: Mapping[str, Any]) -> str:
    if not quant["complete"]:
        return "parts are missing"
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
