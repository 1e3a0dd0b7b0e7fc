"""A launch as arguments of llama-server: the plan's flags, the files, and what this build may not know.

What the plan needs is never left out: a build that does not know such a flag is not started at all, since it
would run with another split than planned. What only closes doors (no UI, no other origins) is left out where
a build has no such door.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from appliance.engines.values import Launch
from appliance.errors import EngineFailed
from appliance.text import clean_line

_OPTIONAL = {"--no-ui": "--no-webui", "--cors-origins": None, "--metrics": None, "--no-warmup": None,
             "--slot-save-path": None, "--cache-ram": None}  # fmt: skip
"""Flags that a build may not know, and the older name of each."""
_FLAG = re.compile(r"--?[a-z][\w-]*")
_FIT = "-fit"
_IN_ALL = frozenset({"-ngl", "-c", "-np", "-ctk", "-ctv", "-fa", "-b", "-ub", "-t", "-tb", "-dev", _FIT})
"""Flags of a plan that every build has which is not far below the floor."""


def arguments(
    launch: Launch,
    host: str,
    port: int,
    known: frozenset[str],
    *,
    fit: bool,
    warmup: bool,
) -> tuple[str, ...]:
    """Everything after the program's name. `port` is 0 with a socket; `known` is empty when nothing is known.

    Raises EngineFailed when the build does not know a flag that the plan needs.
    """
    flags = ["-m", str(launch.model_path), "-a", launch.model_id, "--host", host]
    if port:
        flags += ["--port", str(port)]
    planned = [
        *_with_fit(launch.plan.flags, fit=fit),
        *_projector(launch),
        *_draft(launch, known),
        *_adapters(launch),
        *_mode(launch),
    ]
    _require(planned, known)
    flags += planned
    flags += ["-lv", "4"]  # load and buffer lines; 5 would log prompts
    flags += [*_optional("--metrics", known), *_optional("--no-ui", known)]
    if cors := _optional("--cors-origins", known):
        flags += [*cors, "localhost"]
    if not warmup:
        flags += _optional("--no-warmup", known)
    flags += [*_prompts(launch, known), *_load_mode(launch, known)]
    return tuple(flags)


def environment(launch: Launch) -> dict[str, str]:
    """What is told by environment: the projector's device, which only newer builds take as a flag."""
    names = _devices(launch)
    if launch.mmproj is None or launch.plan.mmproj != "gpu" or not names:
        return {}
    return {"MTMD_BACKEND_DEVICE": names[0]}


def _with_fit(planned: Sequence[str], *, fit: bool) -> list[str]:
    """The plan's flags with `-fit` forced to one value."""
    flags = list(planned)
    if _FIT in flags:
        flags[flags.index(_FIT) + 1] = "on" if fit else "off"
        return flags
    return [*flags, _FIT, "on" if fit else "off"]


def _prompts(launch: Launch, known: frozenset[str]) -> list[str]:
    """Where prompts are saved, and how much RAM those may take that left their slots."""
    folder, ram = launch.slot_save_path, launch.cache_ram_mib
    flags: list[str] = []
    if folder is not None and (flag := _optional("--slot-save-path", known)):
        flags += [*flag, str(folder)]
    if ram is not None and (flag := _optional("--cache-ram", known)):
        flags += [*flag, str(ram)]
    return flags


def _load_mode(launch: Launch, known: frozenset[str]) -> list[str]:
    """A build that knows no such way reads its file as it always does."""
    if launch.load_mode != "none":
        return []
    if "--load-mode" in known or not known:
        return ["--load-mode", "none"]
    return ["--no-mmap"] if "--no-mmap" in known else []


def _projector(launch: Launch) -> list[str]:
    plan = launch.plan
    if launch.mmproj is None or plan.mmproj is None:
        return []
    kept_off = plan.mmproj == "cpu" and "--no-mmproj-offload" not in plan.flags
    return ["--mmproj", str(launch.mmproj), *(["--no-mmproj-offload"] if kept_off else [])]


def _draft(launch: Launch, known: frozenset[str]) -> list[str]:
    """The draft model, on one device or on none.

    Builds with several ways of drafting load its file and leave it unused unless the way is named. Without
    layers on a GPU it would still compute there, unless it has no device at all.
    """
    plan, names = launch.plan, _devices(launch)
    if launch.draft is None or plan.draft is None:
        return []
    flags = ["-md", str(launch.draft)]
    if "-ngld" not in plan.flags:
        flags += ["-ngld", "all" if plan.draft == "gpu" else "0"]
    if plan.draft == "cpu":
        flags += ["-devd", "none"]
    elif names:
        flags += ["-devd", names[0]]
    return [*flags, "--spec-type", "draft-simple"] if "--spec-type" in known or not known else flags


def _adapters(launch: Launch) -> list[str]:
    """Each flag once, since of several only the last one may count."""
    plain = [_quoted(str(one.path)) for one in launch.lora if one.scale == 1.0]
    scaled = [_quoted(f"{_without_colon(one.path)}:{one.scale}") for one in launch.lora if one.scale != 1.0]
    flags = ["--lora", ",".join(plain)] if plain else []
    return [*flags, "--lora-scaled", ",".join(scaled)] if scaled else flags


def _quoted(text: str) -> str:
    """One value of a list that the engine cuts at commas."""
    escaped = text.replace('"', '""')
    return f'"{escaped}"' if escaped != text or "," in text else text


def _without_colon(path: Path) -> Path:
    """The engine cuts `PATH:SCALE` at each colon."""
    if ":" in str(path):
        raise EngineFailed(
            "llama-server can't be given this adapter with a scale.",
            cause=f"its path has a colon: {clean_line(str(path), 200)}",
            hint="Put the file where no name has one, take scale = 1.0, or use --engine xllamacpp.",
        )
    return path


def _mode(launch: Launch) -> list[str]:
    """What it is for, beside text."""
    if launch.reranking:
        return ["--reranking"]
    if not launch.embedding:
        return []
    return ["--embeddings", *(["--pooling", launch.pooling] if launch.pooling else [])]


def _devices(launch: Launch) -> list[str]:
    return [device.name for device in launch.plan.devices]


def _require(flags: Sequence[str], known: frozenset[str]) -> None:
    missing = [flag for flag in flags if _FLAG.fullmatch(flag) and flag not in known | _IN_ALL]
    if known and missing:
        raise EngineFailed(
            f"This llama-server does not know {clean_line(missing[0], 40)}, which the plan needs.",
            cause="without it, the engine would run in another way than planned",
            hint="Update it, or use another engine (--engine xllamacpp): `appliance engines list`.",
        )


def _optional(flag: str, known: frozenset[str]) -> list[str]:
    older = _OPTIONAL[flag]
    if flag in known or not known:
        return [flag]
    return [older] if older is not None and older in known else []
