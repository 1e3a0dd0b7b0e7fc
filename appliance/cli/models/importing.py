"""`models import`: use models that other programs have on this computer, without a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from appliance.cli.licence import accept_option, agrees
from appliance.cli.output import cell, emit, json_option, library, remark, run, say, show, table
from appliance.cli.progress import Bar
from appliance.errors import ApplianceError, LicenseNotAccepted, UsageError
from appliance.units import size as size_text

if TYPE_CHECKING:
    from appliance.operations.imports import Found, Imported, Survey
    from appliance.operations.models import Library
    from appliance.store.caches import Candidate, Origin
    from appliance.store.taking import How

_WAYS = {"link": "hard link", "reference": "reference", "copy": "copy"}


@click.command("import")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("--all", "everything", is_flag=True, help="Everything found that is not here yet.")
@click.option(
    "--from",
    "program",
    type=click.Choice(["hf", "lmstudio", "ollama"]),
    help="Only from the Hugging Face cache, LM Studio or Ollama.",
)
@click.option("--id", "model_id", help="Name for a model that the catalog does not know.")
@click.option("--quant", help="Quantisation, for the same case; default: what the file says.")
@click.option(
    "--how",
    type=click.Choice(["link", "reference", "copy"]),
    help="Default: hard link, or reference where that can't be.",
)
@accept_option
@json_option
def import_models(
    paths: tuple[str, ...],
    everything: bool,
    program: Origin | None,
    model_id: str | None,
    quant: str | None,
    how: How | None,
    accept_license: bool,
    as_json: bool,
) -> None:
    """Use models that other programs have, without a copy. Each is hashed first.

    Without PATH: what the Hugging Face cache, LM Studio and Ollama have. PATH is a file, a folder, or a name
    from that list. Files of others are never changed: a hard link is a second name for the same bytes, a
    reference only notes where they are.

    With --json, a list: {"found": [ROW, ...], "skipped": [{path, why}], "looked": [{origin, path}]}; a row
    has origin, name, path, size (bytes), files (role, path, size, stated_sha256), repo, revision, catalog
    (the id:QUANT that it is or seems to be), state ("here", "new"), how and why. An import: {"imported":
    [{name, path, ref, how, why, listed, missing, stored}], "failed": [{name, error}]}; `how` null = it was
    here already.
    """
    if paths and everything:
        raise UsageError("Give paths or --all, not both.")
    if not paths and not everything:
        if model_id or quant or how:
            raise UsageError("Name what to import.", hint="Like: appliance models import PATH --how copy")
        survey = run(_survey(library(), program))
        emit(_list_document(survey)) if as_json else _show(survey)
        return
    work = _Work(library(), model_id, quant, how, accept_license, quiet=as_json)
    run(work.do(paths, program))
    if as_json:
        emit({
            "imported": [_done_row(candidate, item) for candidate, item in work.done],
            "failed": [{"name": name, "error": error.to_json()} for name, error in work.failed],
        })  # fmt: skip
    work.end()


async def _survey(shelf: Library, program: Origin | None) -> Survey:
    from appliance.operations.imports import PROGRAMS, candidates

    return await candidates(shelf, (program,) if program else PROGRAMS)


class _Work:
    """Imports one after the other; what fails does not keep the rest from being tried."""

    def __init__(
        self,
        shelf: Library,
        model_id: str | None,
        quant: str | None,
        how: How | None,
        accepted: bool,
        *,
        quiet: bool,
    ) -> None:
        self._shelf = shelf
        self._model_id = model_id
        self._quant = quant
        self._how = how
        self._accepted = accepted
        self._quiet = quiet
        self._wanted = 0
        self.done: list[tuple[Candidate, Imported]] = []
        self.failed: list[tuple[str, ApplianceError]] = []

    async def do(self, words: tuple[str, ...], program: Origin | None) -> None:
        """Import what the words mean; without words, everything that is not here."""
        from appliance.operations.imports import PROGRAMS, named

        wanted: list[Candidate] = []
        if not words:
            survey = await _survey(self._shelf, program)
            wanted = [found.candidate for found in survey.found if found.state == "new"]
            if not wanted and not self._quiet:
                say("All of it is here already." if survey.found else "There is nothing to import.")
        self._wanted = max(len(words), len(wanted))
        for word in words:
            try:
                wanted += await named(self._shelf, word, (program,) if program else PROGRAMS)
            except ApplianceError as error:
                self._failed(cell(word), error)
        if (self._model_id or self._quant) and len(wanted) > 1:
            raise UsageError(
                f"--id and --quant name one model; {len(wanted)} were found.", hint="Name one file."
            )
        self._wanted = len(wanted) + len(self.failed)
        for candidate in wanted:
            await self._import(candidate)

    async def _taken(self, candidate: Candidate, accepted: bool) -> Imported:
        from appliance.operations.imports import import_path

        with Bar() as bar:
            return await import_path(
                self._shelf,
                candidate,
                id=self._model_id,
                quant=self._quant,
                how=self._how,
                accepted=accepted,
                on_progress=bar.update,
            )

    async def _import(self, candidate: Candidate) -> None:
        try:
            try:
                item = await self._taken(candidate, self._accepted)
            except LicenseNotAccepted as error:
                if not agrees(error):
                    raise
                item = await self._taken(candidate, True)
        except ApplianceError as error:
            self._failed(candidate.name, error)
            return
        self.done.append((candidate, item))
        if not self._quiet:
            _tell(candidate, item)

    def _failed(self, name: str, error: ApplianceError) -> None:
        self.failed.append((name, error))
        if self._wanted > 1:
            remark(f"✖ {name}: {error}")

    def end(self) -> None:
        """Say what failed: the error itself when it was the only thing to do, else exit code 1."""
        if not self.failed:
            return
        if self._wanted > 1:
            names = ", ".join(name for name, _ in self.failed)
            remark(f"{len(self.failed)} of {self._wanted} could not be imported: {names}")
            raise click.exceptions.Exit(1)
        error = self.failed[0][1]
        if not self._quiet:
            raise error
        remark(f"✖ {error.message}")
        raise click.exceptions.Exit(error.exit_code)


def _tell(candidate: Candidate, item: Imported) -> None:
    path = cell(candidate.main.path)
    if item.how is None:
        say(f"{item.ref.ref} was here already.")
    elif item.how == "reference":
        why = f" ({item.why})" if item.why else ""
        say(f"{item.ref.ref} is verified and used where it is{why}: {path}")
    elif item.how == "copy":
        say(f"{item.ref.ref} is verified and copied from {path}")
    else:
        say(f"{item.ref.ref} is verified and linked, which takes no room: {path}")
    if not item.listed and item.how is not None:
        say(f"  The catalog does not know these bytes: your models.toml has them as {item.ref.ref} now.")
    if item.missing:
        names = ", ".join(f"{pin.base_name} ({size_text(pin.size)})" for pin in item.missing)
        say(f"  Missing beside it: {names}. `appliance models pull {item.ref.ref}` fetches only that.")


def _show(survey: Survey) -> None:
    """What was found where, and how to go on."""
    from appliance.store.caches import ORIGIN_NAMES

    if survey.found:
        made = table("Found in", "Model", "Size", "Is", "State", "Would be", right=("Size",))
        for found in survey.found:
            candidate = found.candidate
            made.add_row(
                ORIGIN_NAMES[candidate.origin],
                cell(candidate.name),
                size_text(candidate.size),
                cell(candidate.catalog_ref) if candidate.catalog_ref else "not in the catalog",
                found.state,
                "" if found.state == "here" else _WAYS[found.how],
            )
        show(made)
        say("Nothing is verified yet. Take one: appliance models import MODEL. All of them: --all")
    else:
        looked = ", ".join(str(root) for _, root in survey.looked)
        say(f"No models were found in {cell(looked)}." if looked else "No other program's models are here.")
        say("A file or folder of your own: appliance models import PATH")
    for skipped in survey.skipped[:20]:
        remark(f"Passed over: {skipped.path}: {skipped.why}")
    if len(survey.skipped) > 20:
        remark(f"... and {len(survey.skipped) - 20} more (--json has all).")


def _list_document(survey: Survey) -> dict[str, Any]:
    return {
        "found": [_found_row(found) for found in survey.found],
        "skipped": [{"path": item.path, "why": item.why} for item in survey.skipped],
        "looked": [{"origin": origin, "path": str(root)} for origin, root in survey.looked],
    }


def _row_head(candidate: Candidate) -> dict[str, Any]:
    return {"name": candidate.name, "path": str(candidate.main.path)}


def _found_row(found: Found) -> dict[str, Any]:
    candidate = found.candidate
    files = [
        {"role": part.role, "path": str(part.path), "size": part.size, "stated_sha256": part.sha256}
        for part in candidate.parts
    ]
    return _row_head(candidate) | {
        "origin": candidate.origin, "size": candidate.size, "files": files, "repo": candidate.repo,
        "revision": candidate.revision, "catalog": candidate.catalog_ref, "state": found.state,
        "how": found.how, "why": found.why,
    }  # fmt: skip


def _done_row(candidate: Candidate, item: Imported) -> dict[str, Any]:
    return _row_head(candidate) | {
        "ref": item.ref.ref, "how": item.how, "why": item.why, "listed": item.listed,
        "missing": [pin.base_name for pin in item.missing],
        "stored": str(item.stored.main) if item.stored else None,
    }  # fmt: skip
