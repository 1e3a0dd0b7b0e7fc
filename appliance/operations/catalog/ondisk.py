"""A model file of this computer as a candidate: hashed here, so its pin is what it is now."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from appliance import hub
from appliance.catalog import File, Role
from appliance.errors import ModelMissing, NotVerified, UsageError
from appliance.gguf import read_header
from appliance.operations.catalog import choosing, sources
from appliance.operations.catalog.candidate import Candidate, Wishes
from appliance.operations.describe import describe
from appliance.store import OnProgress, local, threads
from appliance.store.progress import Reporter
from appliance.text import clean_line

_MOST = 2_000
"""Names of a folder that are looked at."""


async def at_path(path: Path, wishes: Wishes, on_progress: OnProgress) -> Candidate:
    """Read and hash a file, or all parts of its set, and its projector. The files stay where they are.

    Raises ModelMissing, GgufError, NotVerified when a stated hash or size differs or the file keeps changing.
    """
    models = await threads.run(None, _files_of, path)
    projector = await threads.run(None, _projector_of, models[0])
    files = models if projector is None else (*models, projector)
    if len(models) > 1 and (wishes.sha256 or wishes.size):
        raise UsageError(
            "--sha256 and --size belong to one file, and this is a split set.", hint="Leave them out."
        )
    header = await threads.run(None, read_header, files[0])
    pins = await _hashed(models, projector, on_progress)
    if (wishes.sha256 or pins[0].sha256, wishes.size or pins[0].size) != (pins[0].sha256, pins[0].size):
        raise NotVerified(
            f"{files[0]} is not the file that you stated; nothing was added.",
            cause=f"It has {pins[0].size} bytes and SHA-256 {pins[0].sha256}.",
            hint="Get the file again, or leave --sha256 and --size out to take it as it is.",
        )
    where = files[0] if len(files) == 1 else files[0].parent
    return Candidate(
        source=sources.file_source(where), files=pins, pin="user",
        description=describe(header, files[0].name),
        stated_by="you, and the file agrees" if wishes.sha256 else "the file as it is now",
        hints=(
            *([] if projector is None else [f"Its projector for pictures comes along: {projector.name}."]),
            "The file stays where it is: without it, the model is gone unless it was pulled.",
            "The entry makes the model known; `models pull` (a second name for the file, or a copy) makes it "
            "usable. `models import PATH` does both at once.",
        ),
    )  # fmt: skip


def _files_of(path: Path) -> tuple[Path, ...]:
    """The file, or all parts of its set in order. Raises ModelMissing or UsageError."""
    path = path.expanduser().absolute()
    if path.is_dir():
        raise UsageError(f"{path} is a folder.", hint="Name the .gguf file in it; of a split set, any part.")
    if not path.is_file():
        raise ModelMissing(f"There is no file {path}.", hint="Check the path.")
    part = hub.part_of(path.name)
    if part is None:
        return (path,)
    stem, _, parts = part
    files = tuple(path.with_name(f"{stem}-{n:05d}-of-{parts:05d}.gguf") for n in range(1, parts + 1))
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise ModelMissing(
            f"{path.name} is one of {parts} parts, and {len(missing)} are not beside it.",
            cause=f"Missing: {', '.join(clean_line(name, 80) for name in missing[:3])}.",
            hint="Put all parts into one folder.",
        )
    return files


def _projector_of(model: Path) -> Path | None:
    """The projector in the model's folder, where that holds no other model; the F16 one of several."""
    try:
        names = sorted(name for name in os.listdir(model.parent)[:_MOST] if name.lower().endswith(".gguf"))
    except OSError:
        return None
    found = [name for name in names if hub.is_projector(name)]
    stems = {hub.stem_of(name).casefold() for name in names if name not in found}
    if not found or stems != {hub.stem_of(model.name).casefold()}:
        return None
    return model.with_name(next((name for name in found if hub.label_of(name) == "F16"), found[0]))


async def _hashed(
    models: tuple[Path, ...], projector: Path | None, on_progress: OnProgress
) -> tuple[File, ...]:
    files = models if projector is None else (*models, projector)
    total = sum(file.stat().st_size for file in files)
    report = Reporter(files[0].name, total, resumable=True, publish=on_progress)
    report.phase("verifying", total=total)
    stop, pins = threads.StopFlag(), list[File]()
    async with report.ticking():
        for number, file in enumerate(files, 1):

            def moved(done: int) -> None:
                report.done = done

            report.file = file.name
            size, sha256 = await threads.run(stop, _pin_of, file, stop, moved)
            role: Role = "model" if file != projector else "mmproj"
            part = number if len(models) > 1 and role == "model" else None
            pins.append(_file(file.name, size, sha256, part, role))
            report.base, report.done = report.base + size, 0
    report.phase("done", total=total)
    return tuple(pins)


def _pin_of(file: Path, stop: threads.StopFlag, moved: Callable[[int], None]) -> tuple[int, str]:
    """Size and hash of a file that does not change meanwhile. Raises NotVerified, ModelMissing."""
    try:
        before = file.stat()
        sha256 = local.digest(file, stop, moved)
        after = file.stat()
    except OSError as error:
        raise ModelMissing(f"{file} can't be read.", cause=error.strerror, hint="Check it.") from None
    if _state(before) != _state(after):
        raise NotVerified(
            f"{file.name} changed while it was read.",
            hint="Let the program that writes it end, then try again.",
        )
    return after.st_size, sha256


def _state(stat: os.stat_result) -> tuple[int, int, int]:
    return stat.st_size, stat.st_mtime_ns, stat.st_ino


def _file(name: str, size: int, sha256: str, part: int | None, role: Role) -> File:
    try:
        return File(name=name, role=role, size=size, sha256=sha256, part=part)
    except ValidationError as error:
        raise choosing.unusable(error) from None
