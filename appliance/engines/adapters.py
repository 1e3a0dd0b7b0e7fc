"""How each kind of engine is told what to serve: argv, environment and, for our children, a spec on stdin.

The key never stands on a command line. Context, layers and "fit off" always go together: with layers set and
the context left open, llama.cpp may quietly shorten the context.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
from dataclasses import dataclass
from typing import Any

from appliance.engines.arguments import arguments, environment
from appliance.engines.discovery import CHILDREN, ask
from appliance.engines.environment import child_environment
from appliance.engines.features import WORDS, can, needed
from appliance.engines.values import Build, EngineKind, Launch
from appliance.errors import EngineFailed
from appliance.paths import SOCKET_PATH_LIMIT, Paths
from appliance.planning import Plan

_FLAG = re.compile(r"(?<![\w-])--?[a-z][\w-]*")


@dataclass(frozen=True, slots=True)
class Listen:
    """Where the engine shall answer."""

    host: str
    """A path that ends in `.sock`, or 127.0.0.1."""
    port: int
    """0 with a socket."""

    @property
    def socket(self) -> str | None:
        return self.host if self.port == 0 else None

    @property
    def base_url(self) -> str:
        return "http://engine" if self.port == 0 else f"http://{self.host}:{self.port}"


def listen_at(paths: Paths, name: str) -> Listen:
    """A private Unix socket named after the engine where the system has those, else a free loopback port."""
    path = str(paths.runtime / f"engine-{name}.sock")
    if hasattr(socket, "AF_UNIX") and len(path.encode()) <= SOCKET_PATH_LIMIT:
        paths.runtime.mkdir(parents=True, exist_ok=True, mode=0o700)
        return Listen(path, 0)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return Listen("127.0.0.1", int(free.getsockname()[1]))


@dataclass(frozen=True, slots=True)
class Command:
    """What is started."""

    argv: tuple[str, ...]
    env: dict[str, str]
    stdin: bytes | None
    """The spec for our own children."""


def slots_of(kind: EngineKind, plan: Plan) -> int:
    """llama-cpp-python's server answers one request at a time, whatever the plan says."""
    return 1 if kind == "llama-cpp-python" else plan.parallel


async def command(
    build: Build,
    launch: Launch,
    listen: Listen,
    *,
    key: str,
    marker: str,
    fit: bool = False,
    warmup: bool = True,
) -> Command:
    """The start of `build` for `launch`. `fit` is for measuring only.

    Raises EngineFailed when the build can't be started, or can't be told what the plan needs.
    """
    for feature in needed(launch):
        if not can(build.kind, feature):
            raise EngineFailed(
                f"{build.build} can't {WORDS[feature]}, which this model needs.",
                cause="its settings have no place for it",
                hint="Use another engine (--engine llama-server or xllamacpp), or plan again for this one.",
            )
    python = build.kind != "llama-server"
    env = child_environment(key=key, marker=marker, python=python, home=build.home, program=build.path)
    if python:
        name = "xllamacpp_child.py" if build.kind == "xllamacpp" else "llama_cpp_child.py"
        what = _spec(build.kind, launch, listen, fit=fit, warmup=warmup) | {"home": build.home}
        spec = json.dumps(what).encode()
        return Command((sys.executable, "-P", str(CHILDREN / name)), env, spec)
    if build.path is None:
        raise EngineFailed("The llama-server has no path.", hint="Set engine.llama_server.")
    known = await _known_flags(build.path, build.home)
    flags = arguments(launch, listen.host, listen.port, known, fit=fit, warmup=warmup)
    return Command((build.path, *flags), env | environment(launch), None)


def _spec(kind: EngineKind, launch: Launch, listen: Listen, *, fit: bool, warmup: bool) -> dict[str, Any]:
    plan, slots = launch.plan, slots_of(kind, launch.plan)
    devices = _devices(plan)
    return {
        "model": str(launch.model_path),
        "alias": launch.model_id,
        "host": listen.host,
        "port": listen.port,
        "ctx": plan.ctx * slots,
        "parallel": slots,
        "gpu_layers": 0 if devices == [] else plan.gpu_layers,
        "devices": devices,
        "kv_type": plan.kv_type,
        "flash_attn": plan.flash_attn,
        "threads": plan.threads or 0,
        "threads_batch": plan.threads_batch or 0,
        "cache_reuse": plan.cache_reuse,
        "n_batch": plan.n_batch,
        "n_ubatch": plan.n_ubatch,
        "split": plan.split,
        "tensor_split": list(plan.tensor_split),
        "cpu_moe": plan.cpu_moe,
        "mmproj": _projector(launch),
        "draft": _draft(launch),
        "slot_save_path": str(launch.slot_save_path) if launch.slot_save_path is not None else None,
        "cache_ram_mib": launch.cache_ram_mib,
        "embedding": launch.embedding,
        "reranking": launch.reranking,
        "pooling": launch.pooling,
        "lora": [{"path": str(one.path), "scale": one.scale} for one in launch.lora],
        "load_mode": launch.load_mode,
        "fit": fit,
        "warmup": warmup,
    }


def _projector(launch: Launch) -> dict[str, Any] | None:
    """Its file and its device: a name, "" for the engine's choice, None for RAM."""
    if launch.mmproj is None or launch.plan.mmproj is None:
        return None
    device = None if launch.plan.mmproj == "cpu" else _first_device(launch.plan)
    return {"path": str(launch.mmproj), "device": device}


def _draft(launch: Launch) -> dict[str, Any] | None:
    """The same for the draft model."""
    if launch.draft is None or launch.plan.draft is None:
        return None
    device = None if launch.plan.draft == "cpu" else _first_device(launch.plan)
    return {"path": str(launch.draft), "device": device}


def _first_device(plan: Plan) -> str:
    return plan.devices[0].name if plan.devices else ""


def _devices(plan: Plan) -> list[str] | None:
    """The devices that the plan names by `-dev`; empty for `none`, None when it leaves them to the engine."""
    flags = list(plan.flags)
    if "-dev" not in flags:
        return None
    names = flags[flags.index("-dev") + 1]
    return [] if names == "none" else names.split(",")


_help: dict[tuple[str, int], frozenset[str]] = {}


async def _known_flags(path: str, home: str | None) -> frozenset[str]:
    """The flags that `--help` names; asked once per file. Empty when it did not answer: pass all then, and
    ask again next time.
    """
    try:
        stamp = path, os.stat(path).st_mtime_ns
        if stamp in _help:
            return _help[stamp]
        code, text = await ask([path, "--help"], env=child_environment(home=home, program=path))
    except OSError as error:
        raise EngineFailed(
            f"{path} can't be started.",
            cause=error.strerror,
            hint="`appliance engines list` shows the engines that can.",
        ) from None
    known = frozenset(_FLAG.findall(text))
    if code is not None and known:
        _help[stamp] = known
    return known
