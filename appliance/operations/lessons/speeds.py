"""Decode speeds that were seen here, for people: with and without a daemon."""

from __future__ import annotations

from collections.abc import Mapping

from appliance.journal import CONDITIONS, read_speeds
from appliance.paths import Paths


def seen(paths: Paths, ref: str) -> Mapping[str, float | None]:
    """Tokens per second of one request by condition (`cold`, `hot`, `battery`); None: not seen here yet.

    Reads the journal's file and changes nothing, also while a daemon writes it. Raises nothing.
    """
    found = {one.condition: one.tokens_per_second for one in read_speeds(paths.journal_file, ref)}
    return {condition: found.get(condition) for condition in CONDITIONS}
