"""`models list`: what the catalog lists and what is here."""

from __future__ import annotations

import asyncio
import difflib
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import click

from appliance.cli.output import (
    cell,
    daemon_or_none,
    emit,
    find_paths,
    json_option,
    remark,
    run,
    show,
    table,
    width,
)
from appliance.client import Client, EngineRow
from appliance.client.library import names
from appliance.errors import UnknownModel
from appliance.text import clean_line
from appliance.units import size

Row = Mapping[str, Any]
_COLUMNS = ("Model", "Size", "Fits", "State", "Use", "License", "Last used", "Pin", "Disk")
_DROPPED_FIRST = ("Last used", "Pin", "License", "Use")
"""What a narrow terminal does without, in this order."""
_RIGHT = ("Size", "Disk")
_GAP = 2
USES = ("chat", "code", "reasoning", "vision", "embedding", "rerank", "completion")
_LIMITED = " !"
_ENGINE_WORDS = {"starting": "loading", "loading": "loading", "stopping": "stopping", "failed": "failed"}
"""Of a model that the daemon holds and that is not simply loaded."""


@click.command("list")
@click.option("--here", is_flag=True, help="Only those on this disk.")
@click.option("--fits", is_flag=True, help="Only those that fit this machine.")
@click.option("--family", metavar="NAME", help="Only one family, like qwen3.")
@click.option("--use", type=click.Choice(USES, case_sensitive=False), help="Only for one use.")
@json_option
def list_models(here: bool, fits: bool, family: str | None, use: str | None, as_json: bool) -> None:
    """What the catalog lists and what is here.

    Fits: gpu, partly (some layers there), cpu or no; computed from the model's header, or "measured" by the
    engine itself; ~ is a rule of thumb from the size, where no header was seen yet.

    With --json: {"models": [ROW, ...]}; a row has ref, id, quant, family, name, size (bytes), params,
    context, license, license_note, use, source, pin (catalog, user, hub), pin_host (the mirror that stated
    it), state (here, downloading, partial, damaged, missing, absent), loaded, engine (its state, or null),
    default (requests that name no model go to it), pinned (it stays loaded once it is), referenced, path,
    disk and arrived (bytes), used_at (Unix time), fits ({"where": gpu, partly, cpu, no or null, "text",
    "how": measured, computed or rule}). Unknown is null.
    """
    client = daemon_or_none()
    rows = _rows_of(client) if client is not None else run(_rows_here())
    if family is not None:
        _require_family(family.lower(), {row["family"] for row in rows if row["family"]})
    rows = [row for row in rows if _wanted(row, here, fits, family, use)]
    if as_json:
        emit({"models": rows})
        return
    if not rows:
        remark("No model is like that. Without options, `appliance models list` shows all.")
        return
    _show(rows)


def _rows_of(client: Client) -> list[Row]:
    """What the daemon knows, with what its pool says of each."""
    shot, pinned = client.status(), client.pinned()
    rows = client.call("GET", "/api/models")["models"]
    return [row | _held(row["ref"], shot.engine_of(row["ref"]), pinned) for row in rows]


def _held(ref: str, engine: EngineRow | None, pinned: Collection[str]) -> dict[str, Any]:
    return {
        "engine": None if engine is None else engine.state,
        "default": engine is not None and bool(engine.default),
        "pinned": names(ref, pinned) if engine is None or engine.pinned is None else engine.pinned,
    }


async def _rows_here() -> list[dict[str, Any]]:
    """Look at the machine, in child processes, while the catalog is read."""
    from appliance import settings
    from appliance.operations.machine.survey import glance

    paths = find_paths().make()
    loaded = settings.load(paths.config_file)
    looking = asyncio.create_task(glance(loaded, paths))
    await asyncio.sleep(0)  # it begins now

    def opened() -> Any:
        from appliance.operations.models import Library

        return Library.open(paths, loaded)

    library = await asyncio.to_thread(opened)
    from appliance.operations.rows import rows

    found = await asyncio.to_thread(rows, library, looked=await looking)
    return [row | _held(row["ref"], None, loaded.models.pinned) for row in found]


def _require_family(family: str, known: set[str]) -> None:
    """Raises UnknownModel with the nearest names."""
    if family not in known:
        nearest = difflib.get_close_matches(family, sorted(known), n=3, cutoff=0.0)
        raise UnknownModel(
            f"There is no family {clean_line(family, 80)!r} in the catalog.",
            cause=f"The nearest names are {', '.join(nearest)}." if nearest else "The catalog is empty.",
            hint="`appliance models search WORD` looks in names, uses and quants, too.",
        )


def _wanted(row: Row, here: bool, fits: bool, family: str | None, use: str | None) -> bool:
    return (
        (not here or row["state"] in ("here", "downloading", "damaged", "missing"))
        and (not fits or (row.get("fits") or {}).get("where") in ("gpu", "partly", "cpu"))
        and (family is None or row["family"] == family.lower())
        and (use is None or use in row["use"])
    )


def _show(rows: Sequence[Row]) -> None:
    now = time.time()
    lines = [_cells(row, now) for row in rows]
    dropped = _too_wide(lines, width())
    kept = [name for name in _COLUMNS if name not in dropped]
    made = table(*kept, right=_RIGHT)
    for row, line in zip(rows, lines, strict=True):
        limited = _LIMITED if row["license_note"] and "License" in dropped else ""
        made.add_row(line["Model"] + limited, *(line[name] for name in kept[1:]))
    show(made)
    for row in rows:
        if row["state"] == "missing":
            remark(f"{cell(row['ref'])} is not where it was: {clean_line(str(row['path']), 300)}")
    if dropped and sys.stdout.isatty():  # a pipe is told nothing
        marked = " ! is a limited licence." if "License" in dropped else ""
        remark(f"Not shown at this width: {', '.join(dropped)}.{marked} --json has all.")


def _too_wide(lines: Sequence[Mapping[str, str]], width: int) -> list[str]:
    """The columns to leave out so that the others stand on one line each."""
    widths = {name: max(len(name), *(len(line[name]) for line in lines)) for name in _COLUMNS}
    dropped: list[str] = []
    for name in _DROPPED_FIRST:
        if sum(widths.values()) + _GAP * (len(widths) - 1) <= width:
            break
        del widths[name]
        if name == "License":
            widths["Model"] += len(_LIMITED)
        dropped.append(name)
    return dropped


def _cells(row: Row, now: float) -> dict[str, str]:
    limited = " (limited)" if row["license_note"] else ""
    return {
        "Model": cell(row["ref"]),
        "Size": size(row["size"]),
        "Fits": _fit(row),
        "State": _state(row),
        "Use": " ".join(row["use"]),
        "License": cell(row["license"]) + limited,
        "Last used": _age(row.get("used_at"), now),
        "Pin": _pin(row),
        "Disk": size(row.get("disk")) if row.get("disk") else "",
    }


def _fit(row: Row) -> str:
    fits = row.get("fits") or {}
    where = fits.get("where")
    if where is None:
        return "n/a"
    how = fits.get("how")
    return f"~{where}" if how == "rule" else f"{where} measured" if how == "measured" else str(where)


def _pin(row: Row) -> str:
    host = row.get("pin_host")
    return cell(row.get("pin")) + (f" ({cell(host)})" if host else "")


def _state(row: Row) -> str:
    if row["engine"] in _ENGINE_WORDS or row["loaded"]:
        word = _ENGINE_WORDS.get(row["engine"], "loaded")
        return f"{word}, default" if row["default"] else word
    if row["state"] == "here" and row.get("referenced"):
        return "reference"
    arrived = row.get("arrived")
    if row["state"] in ("partial", "downloading") and arrived and row["size"]:
        return f"{row['state']} {min(99, arrived * 100 // row['size'])} %"
    return cell(row["state"])


def _age(used_at: float | None, now: float) -> str:
    if used_at is None:
        return ""
    hours = max(0, int(now - used_at)) // 3600
    return f"{hours // 24} d ago" if hours >= 48 else f"{hours} h ago" if hours else "just now"
