"""Which engines are here, and what each can see. Every look is a child process with a time limit."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import importlib.util
import logging
import os
import re
import shutil
import signal
import sys
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from appliance import settings
from appliance.engines import devices, vulkan
from appliance.engines.builds import records
from appliance.engines.builds.dates import day_of
from appliance.engines.builds.records import Installed
from appliance.engines.environment import child_environment
from appliance.engines.failures import exit_text
from appliance.engines.floor import age, floor_note
from appliance.engines.values import Build, EngineKind
from appliance.paths import Paths
from appliance.planning import DeviceMemory
from appliance.text import clean_line, decode

log = logging.getLogger("appliance.engines")

LOOK_S = 15.0
"""Seconds for one question to an engine: a first start after a reboot reads 200 MB of libraries."""
VULKAN_S = 5.0
"""Seconds for Vulkan's own answer: without it a plan knows less, and nothing else is lost."""
CHILDREN = Path(__file__).parent / "children"
_PACKAGES: dict[EngineKind, str] = {"xllamacpp": "xllamacpp", "llama-cpp-python": "llama_cpp_python"}
"""Distributions of the engines in our own environment, the faster one on a CPU first."""
_MODULES: dict[EngineKind, str] = {"xllamacpp": "xllamacpp", "llama-cpp-python": "llama_cpp"}
"""What is imported of them."""
ON_PATH = "llama-server-on-path"
"""The name of the one on PATH beside a configured one."""
_VERSION = re.compile(r"version: (\S.*)")


async def discover(engine: settings.Engine, paths: Paths | None = None) -> tuple[Build, ...]:
    """Every engine found, in the order of preference among equals. Never raises.

    A configured llama-server first, then the installed builds (with `paths`; the newest first), xllamacpp, a
    `llama-server` on PATH, llama-cpp-python.
    """
    looks: list[Coroutine[Any, Any, Build | None]] = []
    if engine.llama_server:
        looks.append(_llama_server(_expanded(engine.llama_server), "llama-server"))
    if paths is not None:
        here = await asyncio.to_thread(records.installed, paths)
        looks += [installed(paths, record) for record in here[: records.MOST_BUILDS]]
    looks.append(_python("xllamacpp", "xllamacpp"))
    on_path = shutil.which("llama-server")
    if on_path and not (engine.llama_server and _same(on_path, engine.llama_server)):
        looks.append(_llama_server(on_path, ON_PATH if engine.llama_server else "llama-server"))
    looks.append(_python("llama-cpp-python", "llama_cpp"))
    return tuple(build for build in await asyncio.gather(*looks) if build is not None)


async def installed(paths: Paths, record: Installed, *, untested: bool = False) -> Build:
    """One installed build. Without a good test load it is not asked and can't be used, unless `untested`."""
    home = records.home(paths, record.name)
    path = None if record.program is None else str(home / record.program)
    tested = record.tested
    if not untested and (tested is None or not tested.ok):
        build = Build(record.kind, path, record.version, record.build, note=_untested(record), usable=False)
    elif path is not None:
        build = await _llama_server(path, record.name, str(home))
    else:
        build = await _asked(record.kind, record.kind, record.version, record.build, str(home))
    found = age(record.kind, record.version)
    return replace(
        build, version=record.version, build=record.build, name=record.name, home=str(home), date=record.date,
        date_about=record.date_about, old=found == "old",
        note=build.note if not build.usable else floor_note(found),
    )  # fmt: skip


async def asked_again(build: Build) -> Build:
    """The same build as it answers now: a device may have gone, or be back. It is unusable if it does not."""
    if build.path is not None:
        now = await _llama_server(build.path, build.name, build.home)
    else:
        module = _MODULES[build.kind]
        now = await _asked(build.kind, module, build.version or "", build.build, build.home)
    return replace(build, devices=now.devices, sees_gpu=now.sees_gpu, usable=now.usable, note=now.note)


def _same(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(_expanded(other))


def _expanded(path: str) -> str:
    return os.path.expanduser(path)


def _untested(record: Installed) -> str:
    failed = record.tested is not None
    why = f"failed its test load: {record.tested.why}" if record.tested else "was never test-loaded."
    return (
        f"It {why} `appliance engines use {record.name}` tries {'again' if failed else 'it'}, "
        f"`appliance engines rm {record.name}` removes it."
    )


async def _llama_server(path: str, name: str, home: str | None = None) -> Build:
    try:
        (version_code, version_text), (list_code, list_text) = await _both(path, home)
    except OSError as error:
        why = error.strerror or type(error).__name__
        return _unusable(path, name, None, f"{path} does not start: {why}.")
    match = _VERSION.search(version_text)
    version = clean_line(match[1], 80) if match else None
    if version_code != 0 or list_code != 0 or version is None:
        why = "no answer in time" if version_code is None else exit_text(version_code or list_code)
        return _unusable(path, name, version, f"{path} did not answer like a llama-server ({why}).")
    found = await _asked_vulkan(devices.from_text(list_text))
    return _build("llama-server", path, version, f"llama-server {version}", found, name)


async def _both(path: str, home: str | None) -> tuple[tuple[int | None, str], tuple[int | None, str]]:
    """Version and devices, asked side by side. Raises OSError when the program can't be started."""
    env = child_environment(home=home, program=path)
    asked = (ask([path, "--version"], env=env), ask([path, "--list-devices"], env=env))
    version, listed = await asyncio.gather(*asked, return_exceptions=True)
    if isinstance(version, BaseException):
        raise version
    if isinstance(listed, BaseException):
        raise listed
    return version, listed


async def _asked_vulkan(found: tuple[DeviceMemory, ...]) -> tuple[DeviceMemory, ...]:
    """The devices with what Vulkan itself says of them, asked once per process and only where it is used.

    The engine has woken the GPU before, so this look wakes nothing more.
    """
    names = vulkan.names_of(found)
    if not names:
        return found
    known = vulkan.remembered(names)
    if known is None:
        try:
            script = [sys.executable, "-I", "-S", str(CHILDREN / "vulkan.py")]
            code, text = await ask(script, timeout_s=VULKAN_S)
        except OSError:
            code, text = None, ""
        known = vulkan.from_json(text) if code == 0 else ()
        vulkan.remember(names, known)
    return vulkan.refined(found, known)


def _unusable(path: str, name: str, version: str | None, note: str) -> Build:
    text = f"llama-server ({path})"
    return Build("llama-server", path, version, text, note=note, usable=False, name=name)


def without_gpu(engine: settings.Engine, paths: Paths | None = None) -> str | None:
    """The build that a machine without a GPU would use, as far as is known without starting one."""
    used = None if paths is None else records.find(paths, records.read_state(paths).use)
    if used is not None and engine.kind in ("auto", used.kind):
        return used.build
    for kind, distribution in _PACKAGES.items():
        if engine.kind in ("auto", kind) and (version := _version(distribution)) is not None:
            return f"{kind} {version}"
    return None


def version_of(kind: EngineKind) -> str | None:
    """The version of a Python engine in our own environment; None when it is not there."""
    return _version(_PACKAGES[kind]) if kind in _PACKAGES else None


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


async def _python(kind: EngineKind, module: str) -> Build | None:
    version = _version(_PACKAGES[kind])
    return None if version is None else await _asked(kind, module, version, f"{kind} {version}")


async def _asked(kind: EngineKind, module: str, version: str, text: str, home: str | None = None) -> Build:
    """A Python engine, asked for its devices; with `home` the one that lies there."""
    argv = [sys.executable, "-P", str(CHILDREN / "devices.py"), module]
    code, said = await ask(
        argv if home is None else [*argv, home], env=child_environment(python=True, home=home)
    )
    try:
        if code != 0:
            raise ValueError("no answer in time" if code is None else exit_text(code))
        found = await _asked_vulkan(devices.from_json(said))
    except (ValueError, KeyError, TypeError) as error:
        note = f"{text} is installed, but can't be loaded: {clean_line(str(error), 200)}."
        return Build(kind, None, version, text, note=note, usable=False, name=kind)
    return _build(kind, None, version, text, found, kind, module)


def _build(
    kind: EngineKind,
    path: str | None,
    version: str,
    text: str,
    found: tuple[DeviceMemory, ...],
    name: str,
    module: str | None = None,
) -> Build:
    sees_gpu = any(not device.software for device in found)
    how_old, day = age(kind, version), day_of(kind, version, _folder_of(module))
    return Build(
        kind, path, version, text, found, sees_gpu, floor_note(how_old), name=name, old=how_old == "old",
        date=None if day is None else day.day, date_about=day is not None and day.about,
    )  # fmt: skip


def _folder_of(module: str | None) -> Path | None:
    """Where a package of our environment lies; it is not imported for that."""
    found = None if module is None else importlib.util.find_spec(module)
    return None if found is None or found.origin is None else Path(found.origin).parent


def _kill_group(process: asyncio.subprocess.Process) -> None:
    """With what it started: a wrapper's child would hold the pipe open, and `wait` would wait for that."""
    with contextlib.suppress(ProcessLookupError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)  # it leads its own session
        else:
            process.kill()


async def ask(
    argv: Sequence[str], *, env: Mapping[str, str] | None = None, timeout_s: float = LOOK_S
) -> tuple[int | None, str]:
    """Run `argv` and return (exit code, output); the code is None when it took too long and was killed.

    Raises OSError when it can't be started. Only standard output is read as an answer of our own children,
    but llama-server writes its version to standard error, so both are joined for it.
    """
    own = argv[0] == sys.executable
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL if own else asyncio.subprocess.STDOUT,
        env=dict(child_environment() if env is None else env),
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(timeout_s):
            raw, _ = await process.communicate()
        return process.returncode, decode(raw)
    except TimeoutError:
        log.warning("%s did not answer in %.0f s", Path(argv[0]).name, timeout_s)
        return None, ""
    finally:
        if process.returncode is None:
            _kill_group(process)
            await process.wait()
