"""The tables of `plan`: a family's members, and what would be with another context or KV type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from appliance.cli.output import cell, say, say_wrapped, show, table
from appliance.units import size

Row = Mapping[str, Any]


def ranking(document: Mapping[str, Any]) -> None:
    """The members of a family, the best first."""
    family, rows = document["family"], document["ranking"]
    name = cell(family["name"])
    where = "this" if document["machine"] == "here" else "the described"
    say_wrapped(f"{name}: {len(rows)} variants for {where} machine, the best first")
    made = table("", "model", "size", "fits", "tokens/s", "", right=("", "size", "tokens/s"))
    for number, row in enumerate(rows, 1):
        made.add_row(str(number), cell(row["ref"]), size(row["size"]), _fit(row), _speed(row), _notes(row))
    show(made)
    for line in _legend(rows, family["decode_goal"]):
        say_wrapped(line)
    best, served = family["best"], family["served"]
    if best is None:
        say("None of them fits.")
    elif served == best:
        say_wrapped(f"`appliance up {name}` takes {cell(best)}.")
    else:
        say_wrapped(f"The best is {cell(best)}. `appliance up {name}` takes {cell(served)}, which is here.")
    for row in [row for row in rows if row["problem"]][:3]:
        say_wrapped(f"{cell(row['ref'])}: {cell(row['problem'])}")


def what_if(document: Mapping[str, Any]) -> None:
    """Context against KV type: layers on the GPU, tokens/s with an empty and a full context."""
    rows = document["what_if"]
    kinds = list(dict.fromkeys(row["kv_type"] for row in rows))
    found = {(row["ctx"], row["kv_type"]): row for row in rows}
    everything = document["n_layer"] + 1
    slots = max(row["parallel"] for row in rows)
    say_wrapped(
        f"What if ({_slots(slots)}): of {everything} layers on the GPU; ~tokens/s, context empty/full"
    )
    made = table("context", *(f"KV {kind}" for kind in kinds), right=("context",))
    for ctx in sorted({row["ctx"] for row in rows}):
        cells = [_outcome(found.get((ctx, kind)), everything) for kind in kinds]
        made.add_row(f"{ctx}", *cells)
    show(made)
    if any(row["cpu_moe"] and row["gpu_layers"] and row["fits"] for row in rows):
        say("all-35: of so many blocks the experts are in RAM")
    if slots > 1:
        say("--parallel 1 shows the same for one request at a time.")


def _outcome(row: Row | None, everything: int) -> str:
    if row is None:
        return ""
    if not row["fits"]:
        return "does not fit"
    layers = "all" if row["gpu_layers"] >= everything else str(row["gpu_layers"])
    if row["cpu_moe"] and row["gpu_layers"]:
        layers += f"-{row['cpu_moe']}"
    if row["decode"] is None:
        return layers
    return f"{layers}, ~{row['decode']:.3g}/{row['decode_full']:.3g}"


def _fit(row: Row) -> str:
    """Layers on the GPU, slots and context of its plan; by size alone only where it would be."""
    if row["estimated"] or row["where"] == "no":
        words = {"gpu": "~GPU", "partly": "~GPU and RAM", "cpu": "~RAM", "no": "no"}
        return words.get(row["where"], "n/a")
    where = "RAM"
    if row["gpu_layers"]:
        all_there = row["gpu_layers"] > row["n_layer"]
        where = "all" if all_there else f"{row['gpu_layers']}/{row['n_layer'] + 1}"
    return f"{where}, {row['parallel']} x {row['ctx']}"


def _speed(row: Row) -> str:
    return "" if row["where"] == "no" else "n/a" if row["decode"] is None else f"~{row['decode']:.3g}"


def _notes(row: Row) -> str:
    words = {"below_goal": "slow", "short_context": "short"}
    found = [words[row["standing"]]] if row["standing"] in words else []
    if row["cpu_moe"] and row["where"] != "no":
        found.append("experts in RAM")
    if row["restricted"]:
        found.append("licence")
    if row["here"]:
        found.append("here")
    return ", ".join(found)


def _legend(rows: Sequence[Row], goal: float) -> Iterator[str]:
    """What the words of the last column mean, of those that are there."""
    standings = {row["standing"] for row in rows}
    if "below_goal" in standings:
        yield f"slow: under the goal of {goal:g} tokens/s (`goals.decode`)"
    if "short_context" in standings:
        yield "short: less context than the profile is for"
    if any(row["restricted"] for row in rows):
        yield "licence: it limits use, so a family's name never means it"
    if any(row["estimated"] for row in rows):
        yield "~ by its size alone; --fetch-headers gets the headers (some MiB each) and plans them"


def _slots(number: int) -> str:
    return "1 slot" if number == 1 else f"{number} slots"
