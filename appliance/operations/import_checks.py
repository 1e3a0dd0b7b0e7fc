"""Files that are said to be something else than they are: damaged in their cache, or changed since.

What a cache states of a file, and what the catalog pins for its repository and name, are claims about one
hash. Where the hash is another one, the file may be damaged, so it is taken only under a name that the user
gave it, and never against what its own cache says.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from appliance.catalog import FileSource, HfSource, ModelRef
from appliance.errors import NotVerified
from appliance.operations.import_survey import models_of
from appliance.operations.models import Library
from appliance.store.caches import Candidate, Part
from appliance.store.prove import Proven
from appliance.text import clean_line


def require_stated(library: Library, parts: Iterable[Part], proven: Mapping[Path, Proven]) -> None:
    """Raises NotVerified for a file whose cache states another hash than it has."""
    for part in parts:
        found = proven[part.path].sha256
        if part.sha256 in (None, found):
            continue
        refs = [
            ref for ref in library.catalog.refs() if part.sha256 in {pin.sha256 for pin in ref.variant.files}
        ]
        where = os.path.realpath(part.path)
        raise NotVerified(
            f"{clean_line(str(part.path), 300)} is damaged or was changed; nothing was imported.",
            cause=f"{clean_line(where, 300)} is stated to have SHA-256 {part.sha256}, and it has {found}.",
            hint=f"`appliance models pull {refs[0].ref}` fetches it as it should be."
            if refs
            else "Get it again with the program that it is from, then import it.",
        )


def require_no_other(library: Library, candidate: Candidate, proven: Mapping[Path, Proven]) -> None:
    """Raises NotVerified for bytes that the catalog pins otherwise, or that failed their check before."""
    parts = candidate.models
    for ref in library.catalog.refs():
        place = _place(ref, candidate, parts)
        if place is None:
            continue
        pairs = zip(models_of(ref), parts, strict=False)
        pin, part = next(
            ((pin, part) for pin, part in pairs if pin.sha256 != proven[part.path].sha256), (None, None)
        )
        if pin is None or part is None:
            continue
        item, own = proven[part.path], isinstance(ref.variant.source, FileSource)
        raise NotVerified(
            f"{clean_line(str(part.path), 300)} has other bytes than the catalog pins for {place}; "
            "it was not imported.",
            cause=f"{ref.ref} is {pin.size} bytes with SHA-256 {pin.sha256}, "
            f"and the file is {item.size} bytes with {item.sha256}.",
            hint=(
                "Put the right file back. "
                if own
                else f"`appliance models pull {ref.ref}` fetches the right one. "
            )
            + _as_it_is(part),
        )
    _require_not_quarantined(library, parts, proven)


def _place(ref: ModelRef, candidate: Candidate, parts: Sequence[Part]) -> str | None:
    """Where the catalog has a file that this one claims to be; None when it claims nothing of the kind."""
    source, names = ref.variant.source, [PurePosixPath(part.file).name.casefold() for part in parts]
    pins = models_of(ref)
    if isinstance(source, FileSource):
        path = Path(source.path).expanduser()
        files = [path if len(pins) == 1 else path / pin.base_name for pin in pins]
        return str(files[0]) if files == [part.path for part in parts] else None
    if not isinstance(source, HfSource) or source.repo.casefold() not in _claims(candidate):
        return None
    if [pin.base_name.casefold() for pin in pins] != names:
        return None
    told = all(part.sha256 is not None for part in parts) and candidate.revision is not None
    if told and candidate.revision != source.revision:
        return None  # a cache that told the truth of another commit
    return f"{source.repo}/{pins[0].name}"


def _claims(candidate: Candidate) -> set[str]:
    """The repositories that the folders around it name."""
    folder = candidate.main.path.parent
    found = {f"{folder.parent.name}/{folder.name}".casefold()}
    return found | ({candidate.repo.casefold()} if candidate.repo else set())


def _require_not_quarantined(library: Library, parts: Sequence[Part], proven: Mapping[Path, Proven]) -> None:
    """A hard link that was found damaged is the same file as the name in quarantine."""
    ours = {(item.inode, item.device): part for part in parts for item in [proven[part.path]]}
    for left in library.store.leftovers():
        if left.kind != "quarantined":
            continue
        try:
            found = left.path.stat()
        except OSError:
            continue
        part = ours.get((found.st_ino, found.st_dev))
        if part is not None:
            raise NotVerified(
                f"{clean_line(str(part.path), 300)} failed a check before; it was not imported.",
                cause=f"It is in quarantine as {left.path}: {left.about}.",
                hint=_as_it_is(part),
            )


def _as_it_is(part: Part) -> str:
    path = shlex.quote(clean_line(str(part.path), 300))
    return f"To take this file as what it is: `appliance models import {path} --id NAME`."
