"""`models add`: make an entry of the user's own."""

from __future__ import annotations

import click

from appliance.cli.output import emit, json_option, library, remark, run, say
from appliance.text import clean, clean_line
from appliance.units import size as size_text


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
