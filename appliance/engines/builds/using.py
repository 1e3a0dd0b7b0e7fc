"""Which build is used: chosen, taken back, removed. Each changes one small file, as a whole."""

from __future__ import annotations

from appliance.engines.builds import pins, records, unpack
from appliance.engines.builds.records import AUTO, Installed, State, Tested
from appliance.errors import EngineError, UsageError
from appliance.paths import Paths


def use(paths: Paths, name: str) -> State:
    """Use a build by name, or `auto`. What was used so far is what `rollback` goes back to."""
    state = records.read_state(paths)
    if state.use == name:
        return state
    changed = state.model_copy(update={"use": name, "before": state.use})
    records.write_state(paths, changed)
    return changed


def rollback(paths: Paths) -> State:
    """Use what was used before; a second rollback goes forth again. Raises UsageError when there is none."""
    state = records.read_state(paths)
    if state.before is None:
        raise UsageError(
            "There is no build before this one.",
            hint="`appliance engines list` shows what there is; `appliance engines use NAME|auto` chooses.",
        )
    changed = state.model_copy(update={"use": state.before, "before": state.use})
    records.write_state(paths, changed)
    return changed


def came_after(paths: Paths, former: str) -> None:
    """A new build takes the place of `former` by itself (nothing was chosen): roll back to that one."""
    state = records.read_state(paths)
    if state.use == AUTO and former:
        records.write_state(paths, state.model_copy(update={"before": former}))


def note_test(paths: Paths, record: Installed, tested: Tested) -> Installed:
    """Keep how a build's test load ended."""
    noted = record.model_copy(update={"tested": tested})
    records.write_record(records.folder(paths, record.name), noted)
    return noted


def remove(paths: Paths, name: str, *, forget: bool) -> State:
    """Remove an installed build; with `forget` also the pin of its file, whose name may stand for `name`.

    Where it was in use, that is left to us again. The pins stay otherwise: the same name never becomes other
    bytes unnoticed. Raises UsageError when there is nothing of that name.
    """
    record, state = records.find(paths, name), records.read_state(paths)
    file = record.file if record is not None else name
    folder = records.folder(paths, name)
    if record is None and not folder.is_dir() and not (forget and file in state.pins):
        raise UsageError(
            f"No installed build has the name {name}.",
            cause=f"There is {', '.join(one.name for one in records.installed(paths)) or 'none'}.",
            hint="Engines that were found, not installed, are removed where they came from (pip, brew).",
        )
    changes: dict[str, object] = {"pins": pins.without(state.pins, file)} if forget else {}
    if state.use == name:
        changes |= {"use": AUTO}
    if state.before == name or (state.use == name and state.before == AUTO):
        changes |= {"before": None}
    state = state.model_copy(update=changes)
    records.write_state(paths, state)
    try:
        if folder.is_dir():
            unpack.remove(folder)
    except OSError as error:
        raise EngineError(
            f"{folder} can't be removed.",
            cause=error.strerror,
            hint="Stop the engine that runs from it (`appliance down`), then try again.",
        ) from None
    return state
