"""Engine builds as a user asks for them: list, install, use, roll back, remove; with or without a daemon.

Whatever changes something holds the lock of the builds' folder; what blocks runs in a thread, and a cancel
waits until that has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from typing import Any

from appliance.engines.builds import install as room
from appliance.engines.builds import records, using
from appliance.engines.builds.fetch import Step, Tell
from appliance.engines.builds.install import Order, Outcome
from appliance.engines.builds.records import AUTO, Installed, State
from appliance.engines.builds.running import serving
from appliance.engines.builds.testload import try_build
from appliance.engines.builds.variants import BACKENDS, Backend, facts, wanted
from appliance.engines.choice import ALLOW_OLD
from appliance.engines.discovery import installed as look_at
from appliance.engines.discovery import version_of
from appliance.engines.floor import OLD, age
from appliance.errors import EngineError, UsageError
from appliance.hardware import detect_safely
from appliance.operations.machine.survey import Survey, survey
from appliance.paths import Paths
from appliance.settings import Settings
from appliance.store import threads

Document = dict[str, Any]
_LIBRARY = ("cannot open shared object", "DLL load failed", "Library not loaded")


async def listing(settings: Settings, paths: Paths) -> Document:
    """The document of `engines list`: every engine, its build, date and devices, the chosen one and why."""
    looked, state, here = await asyncio.gather(
        survey(settings, paths=paths),
        asyncio.to_thread(records.read_state, paths),
        asyncio.to_thread(records.installed, paths),
    )
    document = looked.to_json()
    known = {record.name: record for record in here}
    chosen = None if looked.choice is None else looked.choice.build.name
    for row in document["engines"]:
        record = known.get(row["name"])
        row["installed"] = None if record is None else _record(record)
        row["chosen"] = row["name"] == chosen
        row["in_use"] = row["name"] == state.use
        row["before"] = row["name"] == state.before
    return document | {"use": state.use, "before": state.before}


async def install(
    settings: Settings, paths: Paths, backend: str, source: str | None, tell: Tell = lambda _: None
) -> Document:
    """Fetch a build, prove it, unpack it and load a test model with it. `tell` is called from a thread, too.

    Raises EngineError (a build that fails its test load is kept and marked), DownloadError, DiskFull,
    UsageError.
    """
    order = await _order(settings, backend, source)
    former = await survey(settings, paths=paths)
    async with _alone(paths):
        stop = threads.StopFlag()
        outcome = await threads.run(stop, room.install, paths, order, tell, stop)
        record = await _tested(paths, outcome.record, tell)
    require_working(record)
    looked = await survey(settings, paths=paths)
    if outcome.fresh and _took_over(former, looked, record.name):
        await asyncio.to_thread(using.came_after, paths, _name(former))
    tell(Step("done", record.build))
    return _answer(await asyncio.to_thread(records.read_state, paths), looked) | _arrival(outcome, record)


async def use(settings: Settings, paths: Paths, name: str, tell: Tell = lambda _: None) -> Document:
    """Use a build by its name, or `auto`. One that never passed its test load is loaded first.

    Raises UsageError for an unknown name, EngineError when it does not work or is below the floor.
    """
    async with _alone(paths):
        if name != AUTO:
            await _require_usable(settings, paths, name, tell)
        state = await asyncio.to_thread(using.use, paths, name)
    return _answer(state, await survey(settings, paths=paths))


async def rollback(settings: Settings, paths: Paths, tell: Tell = lambda _: None) -> Document:
    """Use what was used before. Raises UsageError when there is nothing, else as `use`."""
    async with _alone(paths):
        before = (await asyncio.to_thread(records.read_state, paths)).before
        if before not in (None, AUTO):
            await _require_usable(settings, paths, before, tell)
        state = await asyncio.to_thread(using.rollback, paths)
    return _answer(state, await survey(settings, paths=paths))


async def remove(settings: Settings, paths: Paths, name: str, *, forget: bool = False) -> Document:
    """Remove an installed build; `forget` drops its pin, too.

    Raises UsageError for an unknown name, EngineError when it serves now or can't be removed.
    """
    async with _alone(paths):
        if name in await asyncio.to_thread(serving, paths):
            raise EngineError(
                f"{name} serves a model now.",
                hint="Use another one (`appliance engines use auto`) and restart the engine, or "
                "`appliance down`.",
            )
        state = await asyncio.to_thread(using.remove, paths, name, forget=forget)
    return {"removed": name} | _answer(state, await survey(settings, paths=paths))


def require_working(record: Installed) -> None:
    """Raises EngineError for a build whose test load failed."""
    tested = record.tested
    if tested is None or tested.ok:
        return
    missing = any(word in (tested.why or "") for word in _LIBRARY)
    first = "Install the library that it names (of the GPU's driver or toolkit). " if missing else ""
    raise EngineError(
        f"{record.build} is installed, but it does not work here: it is kept and never chosen.",
        cause=tested.why,
        hint=f"{first}`appliance engines use {record.name}` tries again, "
        f"`appliance engines rm {record.name}` removes it.",
    )


async def _order(settings: Settings, backend: str, source: str | None) -> Order:
    known: Backend | None = next((one for one in BACKENDS if one == backend), None)
    if known is None:
        raise UsageError(f"There are no builds for {backend[:40]!r}.", hint=f"One of {', '.join(BACKENDS)}.")
    driver = await _nvidia() if known == "cuda" else None
    what = wanted(known, await asyncio.to_thread(facts, driver), explicit=source is not None)
    version = await asyncio.to_thread(version_of, "xllamacpp")
    return Order(what, source, version, settings.engine.allow_old)


async def _nvidia() -> str | None:
    machine = await detect_safely()
    return next((gpu.driver for gpu in machine.gpus if gpu.backend == "cuda" and gpu.driver), None)


@asynccontextmanager
async def _alone(paths: Paths) -> AsyncIterator[None]:
    """The lock of the builds' folder, taken beside the event loop."""
    with ExitStack() as held:
        await threads.run(None, held.enter_context, records.alone(paths))
        yield


async def _tested(paths: Paths, record: Installed, tell: Tell) -> Installed:
    """Load the test model, unless that went well before; what came of it is in the record."""
    if record.tested is not None and record.tested.ok:
        return record
    tell(Step("testing", record.build))
    # one that does not answer the look is loaded, too: its log says why
    build = await look_at(paths, record, untested=True)
    tested = await try_build(build, paths)
    return await asyncio.to_thread(using.note_test, paths, record, tested)


async def _require_usable(settings: Settings, paths: Paths, name: str, tell: Tell) -> None:
    record = await asyncio.to_thread(records.find, paths, name)
    if record is None:
        await _require_found(settings, paths, name)
        return
    if age(record.kind, record.version) == "old" and not settings.engine.allow_old:
        raise EngineError(f"{record.build} is below the security floor.", cause=OLD, hint=ALLOW_OLD)
    require_working(await _tested(paths, record, tell))


async def _require_found(settings: Settings, paths: Paths, name: str) -> None:
    """An engine that was found: it has to start, and to be new enough."""
    builds = (await survey(settings, paths=paths)).builds
    found = next((build for build in builds if build.name == name), None)
    if found is None:
        raise UsageError(
            f"No engine has the name {name[:100]!r}.",
            cause=f"There is {', '.join(build.name for build in builds)}.",
            hint="`appliance engines list` shows them; `auto` leaves the choice to the appliance.",
        )
    if not found.usable:
        raise EngineError(f"{found.build} can't be used.", cause=found.note, hint="Use another one.")
    if found.old and not settings.engine.allow_old:
        raise EngineError(f"{found.build} is below the security floor.", cause=OLD, hint=ALLOW_OLD)


def _name(looked: Survey) -> str:
    return looked.choice.build.name if looked.choice is not None else ""


def _took_over(former: Survey, now: Survey, name: str) -> bool:
    return _name(now) == name != _name(former)


def _answer(state: State, looked: Survey) -> Document:
    """What is in force after a change."""
    document = looked.to_json()
    return {"use": state.use, "before": state.before} | {
        key: document[key] for key in ("chosen", "error", "note")
    }


def _arrival(outcome: Outcome, record: Installed) -> Document:
    return {
        "name": record.name,
        "build": record.build,
        "fresh": outcome.fresh,
        "notes": list(outcome.notes),
        "installed": _record(record),
    }


def _record(record: Installed) -> Mapping[str, Any]:
    kept = ("backend", "variant", "project", "file", "url", "sha256", "size", "on_disk", "installed_at")
    document = record.model_dump(mode="json")
    return {key: document[key] for key in (*kept, "tested")}
