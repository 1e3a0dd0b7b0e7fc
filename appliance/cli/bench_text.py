"""The text of `bench tune`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from appliance.cli.output import cell, say, say_wrapped, show, table
from appliance.units import duration


def candidates(document: Mapping[str, Any]) -> None:
    """What would be tried."""
    say(f"{document['model']} with {document['engine']} would be measured with")
    for row in document["tried"]:
        say(f"  {cell(row['words'])}")


def outcome(document: Mapping[str, Any]) -> None:
    """What was measured, what was kept of it, and why."""
    made = table("Settings", "Prefill", "Decode", "All slots", "", right=("Prefill", "Decode", "All slots"))
    for row in document["rows"]:
        mark = "kept" if row["name"] == document["best"] and document["kept"] else ""
        speeds, ratios = row["speeds"] or {}, row["ratios"] or {}
        figures = [_figure(speeds.get(name), ratios.get(name)) for name in ("prefill", "decode", "many")]
        made.add_row(cell(row["words"]), *figures, "did not start" if row["failed"] else mark)
    show(made)
    say("tokens/s; x: times the engine's own defaults, measured in turn with them")
    say_wrapped(f"{'Kept' if document['kept'] else 'Not kept (the disk did not take it)'}: {_kept(document)}")
    if document["pause"] is not None:
        say_wrapped(_pause(document["pause"], document["goal"]))
    for note in document["notes"]:
        say(f"! {note}")


def _kept(document: Mapping[str, Any]) -> str:
    row = next(row for row in document["rows"] if row["name"] == document["best"])
    return f"{row['words']}. Why: {document['why']}."


def _figure(speed: float | None, ratio: float | None) -> str:
    if speed is None:
        return "n/a"
    return f"{speed:.1f}" if ratio is None else f"{speed:.1f} x{ratio:.2f}"


def _pause(pause: Mapping[str, Any], goal: str) -> str:
    """What a long prompt does to running streams with these settings."""
    text = f"A long prompt holds running streams up for {duration(pause['batch_s'])} at a time"
    if pause["batch_s"] <= pause["goal_s"] or goal == "latency":
        return f"{text} (goals.itl_p99: {duration(pause['goal_s'])})."
    return (
        f"{text}; goals.itl_p99 ({duration(pause['goal_s'])}) would ask for batches of {pause['wanted']} "
        "tokens: --goal latency."
    )
