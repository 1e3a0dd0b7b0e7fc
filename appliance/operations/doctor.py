"""What is wrong with this installation, why it matters, and the command that mends it."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from importlib import metadata
from pathlib import Path

from appliance import catalog, settings
from appliance.engines.builds import records
from appliance.errors import ApplianceError
from appliance.operations import doctor_loads
from appliance.operations.finding import Finding
from appliance.operations.machine.survey import Survey, survey
from appliance.operations.ports import holder
from appliance.paths import Paths
from appliance.units import GIB, size

LOW_DISK = 5 * GIB
LOW_STATE = GIB // 2
"""Journal, logs and saved queues grow slowly."""


async def examine(paths: Paths, daemon_url: str | None) -> tuple[Finding, ...]:
    """Run every check. A broken part becomes a finding; nothing is raised."""
    findings = [_python(), _name_clash(), *_folders(paths), *_disks(paths)]
    config, found = _config(paths)
    findings += found
    findings.append(_catalog(paths))
    findings.append(await asyncio.to_thread(_port, config, daemon_url))
    looked = await survey(config, paths=paths)
    findings += [*_engines(looked), *await asyncio.to_thread(_builds, paths, looked)]
    findings += [
        *_gpu(looked),
        *_remotes(config),
        *await asyncio.to_thread(doctor_loads.loads, paths, config),
    ]
    return tuple(findings)


def _python() -> Finding:
    return Finding("python", "ok", f"Python {sys.version.split()[0]} at {sys.prefix}")


def _name_clash() -> Finding:
    """Both import names exist on the public index as unrelated packages; either would hide ours."""
    ours = {"llama-appliance"}
    clashes = sorted(
        {
            name
            for package in ("appliance", "tui")
            for name in metadata.packages_distributions().get(package, [])
            if name not in ours
        }
    )
    if not clashes:
        return Finding("packages", "ok", "no other distribution installs `appliance` or `tui`")
    names = ", ".join(clashes)
    todo = f"`{sys.executable} -m pip uninstall {' '.join(clashes)}`, then install llama-appliance again."
    return Finding("packages", "problem", f"{names} installs a package of the same name as ours.", todo)


def _folders(paths: Paths) -> list[Finding]:
    found = []
    for name in ("config", "data", "state", "cache", "runtime"):
        folder: Path = getattr(paths, name)
        nearest = next((p for p in (folder, *folder.parents) if p.exists()), folder)
        if not os.access(nearest, os.W_OK):
            todo = "Make it writable, or set APPLIANCE_HOME to a folder that is."
            found.append(Finding(f"folder {name}", "problem", f"{folder} can't be written.", todo))
    return found or [
        Finding("folders", "ok", f"config {paths.config}, data {paths.data}, state {paths.state}")
    ]


def _disks(paths: Paths) -> list[Finding]:
    """The disk of the models, and the one of the state where that is another."""
    models, state = _nearest(paths.models), _nearest(paths.state)
    todo = "Free space, or move models with APPLIANCE_HOME; `appliance models rm` removes one."
    found = [_disk("disk", models, f"for models in {paths.models}", LOW_DISK, todo)]
    if state.stat().st_dev != models.stat().st_dev:
        todo = "Free space there: without it neither requests nor downloads are recorded."
        found.append(_disk("disk state", state, f"for the state in {paths.state}", LOW_STATE, todo))
    return found


def _nearest(folder: Path) -> Path:
    return next(p for p in (folder, *folder.parents) if p.exists())


def _disk(check: str, folder: Path, what: str, low: int, todo: str) -> Finding:
    free = shutil.disk_usage(folder).free
    detail = f"{size(free)} free {what}"
    return Finding(check, "problem", detail, todo) if free < low else Finding(check, "ok", detail)


def _config(paths: Paths) -> tuple[settings.Settings, list[Finding]]:
    try:
        return settings.load(paths.config_file), [Finding("settings", "ok", str(paths.config_file))]
    except ApplianceError as error:
        finding = Finding("settings", "problem", _sentence(error), error.hint)
        return settings.Settings(), [finding]


def _catalog(paths: Paths) -> Finding:
    try:
        known = catalog.load(paths.user_catalog, paths.pins)
    except ApplianceError as error:
        return Finding("catalog", "problem", _sentence(error), error.hint)
    return Finding("catalog", "ok", f"{len(known.models)} models")


def _port(config: settings.Settings, daemon_url: str | None) -> Finding:
    if daemon_url is not None:
        return Finding("port", "ok", f"the daemon serves {daemon_url}")
    port = config.server.port
    by = holder(port)
    if by is None:
        return Finding("port", "ok", f"{config.server.host}:{port} is free")
    todo = f"End it, or choose another: `appliance config set server.port {port + 1}`."
    return Finding("port", "problem", f"{config.server.host}:{port} is held by {by}.", todo)


def _engines(looked: Survey) -> list[Finding]:
    if looked.choice is None:
        error = looked.error
        detail = _sentence(error) if error is not None else "no engine"
        return [Finding("engine", "problem", detail, error.hint if error is not None else None)]
    return [Finding("engine", "ok", f"{looked.choice.build.build}: {looked.choice.reason}")]


def _builds(paths: Paths, looked: Survey) -> list[Finding]:
    """Installed builds: what they take, and those that do not work."""
    here, replaced = records.installed(paths), looked.replaced()
    found = [] if replaced is None else [Finding("engine builds", "problem", replaced.detail, replaced.todo)]
    for one in here:
        if one.tested is None or not one.tested.ok:
            why = "was never test-loaded" if one.tested is None else "failed its test load"
            todo = f"`appliance engines use {one.name}` tries again, `appliance engines rm {one.name}`."
            found.append(Finding("engine builds", "note", f"{one.name} {why}.", todo))
    if here and not found:
        taken = size(sum(one.on_disk for one in here))
        found.append(Finding("engine builds", "ok", f"{len(here)} installed ({taken}) in {paths.engines}"))
    return found


def _gpu(looked: Survey) -> list[Finding]:
    unused = looked.gpu_unused()
    if unused is not None:
        return [Finding("gpu", "problem", unused.detail, unused.todo)]
    if not looked.machine.gpus:
        why = "; ".join(looked.machine.notes) or "none found"
        return [Finding("gpu", "note", f"running on CPU: {why}")]
    return [
        Finding("gpu", "ok", f"{gpu.name}, {size(gpu.total)}, {size(gpu.free)} free")
        for gpu in looked.machine.gpus
    ]


def _remotes(config: settings.Settings) -> list[Finding]:
    found = []
    for remote in config.remotes:
        if remote.api_key_env and not os.environ.get(remote.api_key_env):
            todo = f"export {remote.api_key_env}=... in the shell that starts the daemon."
            found.append(
                Finding(f"remote {remote.name}", "problem", f"{remote.api_key_env} is not set here.", todo)
            )
        else:
            found.append(Finding(f"remote {remote.name}", "ok", f"{remote.kind} at {remote.url}"))
    return found


def _sentence(error: ApplianceError) -> str:
    return " ".join(part for part in (error.message, error.cause) if part)
