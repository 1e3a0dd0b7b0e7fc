"""Which engines are here, and what each can see. Every look is a child process with a time limit."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import logging
import os
import re
import shutil
import signal
import sys
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from appliance import settings
from appliance.engines import devices, vulkan
from appliance.engines.environment import child_environment
from appliance.engines.failures import exit_text
from appliance.engines.floor import floor_note
from appliance.engines.values import Build, EngineKind
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
_VERSION = re.compile(r"version: (\S.*)")


async def discover(engine: settings.Engine) -> tuple[Build, ...]:
    """Every engine found, in the order of preference among equals. Never raises.

    A configured llama-server first, then xllamacpp, a `llama-server` on PATH, llama-cpp-python.
    """
    looks: list[Coroutine[Any, Any, Build | None]] = []
    if engine.llama_server:
        looks.append(_llama_server(_expanded(engine.llama_server)))
    looks.append(_python("xllamacpp", "xllamacpp"))
    on_path = shutil.which("llama-server")
    if on_path and not (engine.llama_server and _same(on_path, engine.llama_server)):
        looks.append(_llama_server(on_path))
    looks.append(_python("llama-cpp-python", "llama_cpp"))
    return tuple(build for build in await asyncio.gather(*looks) if build is not None)


def _same(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(_expanded(other))


def _expanded(path: str) -> str:
    return os.path.expanduser(path)


async def _llama_server(path: str) -> Build:
    try:
        (version_code, version_text), (list_code, list_text) = await _both(path)
    except OSError as error:
        return _unusable(path, None, f"{path} does not start: {error.strerror or type(error).__name__}.")
    match = _VERSION.search(version_text)
    version = clean_line(match[1], 80) if match else None
    if version_code != 0 or list_code != 0 or version is None:
        why = "no answer in time" if version_code is None else exit_text(version_code or list_code)
        return _unusable(path, version, f"{path} did not answer like a llama-server ({why}).")
    found = await _asked_vulkan(devices.from_text(list_text))
    return _build("llama-server", path, version, f"llama-server {version}", found)


async def _both(path: str) -> tuple[tuple[int | None, str], tuple[int | None, str]]:
    """Version and devices, asked side by side. Raises OSError when the program can't be started."""
    asked = (ask([path, "--version"]), ask([path, "--list-devices"]))
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


def _unusable(path: str, version: str | None, note: str) -> Build:
    return Build("llama-server", path, version, f"llama-server ({path})", note=note, usable=False)


def without_gpu(engine: settings.Engine) -> str | None:
    """The build that a machine without a GPU would use, as far as is known without starting one."""
    for kind, distribution in _PACKAGES.items():
        if engine.kind in ("auto", kind) and (version := _version(distribution)) is not None:
            return f"{kind} {version}"
    return None


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


async def _python(kind: EngineKind, module: str) -> Build | None:
    version = _version(_PACKAGES[kind])
    if version is None:
        return None
    name = f"{kind} {version}"
    code, text = await ask(
        [sys.executable, "-P", str(CHILDREN / "devices.py"), module], env=child_environment(python=True)
    )
    try:
        if code != 0:
            raise ValueError("no answer in time" if code is None else exit_text(code))
        found = await _asked_vulkan(devices.from_json(text))
    except (ValueError, KeyError, TypeError) as error:
        note = f"{name} is installed, but can't be loaded: {clean_line(str(error), 200)}."
        return Build(kind, None, version, name, note=note, usable=False)
    return _build(kind, None, version, name, found)


def _build(
    kind: EngineKind, path: str | None, version: str, text: str, found: tuple[DeviceMemory, ...]
) -> Build:
    sees_gpu = any(not device.software for device in found)
    return Build(kind, path, version, text, found, sees_gpu, floor_note(kind, version))


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
