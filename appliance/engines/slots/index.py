"""`index.json` of one folder of saved prompts. A broken one lists nothing, so that its files are removed."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from appliance.engines.slots.rules import Entry
from appliance.engines.slots.wire import Said
from appliance.store import layout

NAME = "index.json"
_MOST = 256
_FILE = re.compile(r"[0-9a-f]{16}\.slot")
_DIGEST = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Row:
    """One listed file."""

    entry: Entry
    said: Said
    """By the engine that wrote it."""
    given: bool = False
    """An engine is reading it, or ended while it did."""


def read(folder: Path, key: str) -> list[Row]:
    """Its rows; a row that is not as it should be is left out."""
    document = layout.read_json(folder / NAME)
    rows = document.get("files") if document is not None and document.get("v") == 1 else None
    if not isinstance(rows, list):
        return []
    return [row for row in (_row(one, key) for one in rows[:_MOST]) if row is not None]


def write(folder: Path, rows: Sequence[Row]) -> None:
    """Raises OSError."""
    layout.write_json(
        folder / NAME, {"v": 1, "files": [_document(row) for row in rows[-_MOST:]]}, durable=False
    )


def _document(row: Row) -> dict[str, Any]:
    entry, said = row.entry, row.said
    return {
        "name": entry.name,
        "tokens": entry.tokens,
        "bytes": entry.n_bytes,
        "xxh3": entry.digest,
        "saved_at": entry.saved_at,
        "used_at": entry.used_at,
        "engine": [said.build, said.ctx, said.slots],
        "given": row.given,
    }


def _row(found: object, key: str) -> Row | None:
    try:
        row: Any = found
        build, ctx, slots = row["engine"]
        entry = Entry(
            key, str(row["name"]), _whole(row["tokens"]), _whole(row["bytes"]), str(row["xxh3"]),
            _time(row["saved_at"]), _time(row["used_at"]),
        )  # fmt: skip
        if not _FILE.fullmatch(entry.name) or not _DIGEST.fullmatch(entry.digest):
            return None
        return Row(entry, Said(str(build), _whole(ctx), _whole(slots)), row["given"] is not False)
    except (KeyError, TypeError, ValueError, IndexError):
        return None


def _whole(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(value)
    return value


def _time(value: object) -> float:
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(value)
    return float(value)
