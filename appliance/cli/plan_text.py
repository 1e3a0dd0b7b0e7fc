"""A plan for people: what it is, where the memory goes, how fast, and why. 80 columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from appliance.cli.output import cell, say, say_wrapped, show, table
from appliance.cli.plan_tables import ranking, what_if
from appliance.text import clean_line
from appliance.units import MIB

Document = Mapping[str, Any]

_GAVE = (
    "tight", "ubatch", "kv_quantised", "experts_in_ram", "context_cut", "fewer_layers", "context_first",
)  # fmt: skip
_ACCOUNT = ("free", "reserve", "weights", "kv", "compute", "overhead", "spare", "short")
"""Lines that say what the table says."""
_VERDICT = ("does_not_fit", "would_fit", "refused")
_SPEED = "speed"
_SOURCES = {
    "seen": "from speeds seen here",
    "table": "by data sheet",
    "rule": "by rule",
}
"""Where the bandwidth comes from that an estimate is made of (`speed.how`)."""
_FIGURES = ("model", "kv", "compute", "overhead", "reserve", "free", "spare")


def render(document: Document) -> None:
    """The whole answer."""
    if document.get("family"):
        ranking(document)
        if document["arch"] is None:
            no_speed(document)
            return
        say()
    headline(document)
    say()
    memory(document)
    say()
    line = speed_line(document)
    if line is not None:
        say_wrapped(line)
    no_speed(document)
    if document.get("start"):
        say_wrapped(f"Loading it: {clean_line(document['start']['text'])}")
    reasons(document["reasons"])
    if document["flags"]:
        flags(document)
    if document.get("what_if"):
        say()
        what_if(document)


def headline(document: Document) -> None:
    """Which model, with which engine, and the settings."""
    engine = document["engine_build"]
    machine = "for the described machine" if document.get("machine", "here") != "here" else None
    say_wrapped(f"{cell(document['model'])} ({cell(document['arch'])}), {machine or f'with {cell(engine)}'}")
    how = "measured by the engine" if document.get("measured") else "computed"
    say_wrapped(f"{_verdict(document)} ({how}): {', '.join(_settings(document))}")


def _verdict(document: Document) -> str:
    if any(isinstance(line, Mapping) and line["code"] == "refused" for line in document["reasons"]):
        return "THE ENGINE REFUSES IT"
    return "fits" if document["fits"] else "DOES NOT FIT"


def _settings(document: Document) -> list[str]:
    layers, everything = document["gpu_layers"], document["n_layer"] + 1
    n_gpus = len(document["devices"])
    where = "the GPU" if n_gpus == 1 else f"{n_gpus} GPUs"
    if not n_gpus:
        found = ["all on the CPU"]
    elif layers >= everything:
        found = [f"all {everything} layers on {where}"]
    else:
        found = [f"{layers} of {everything} layers on {where}"]
    if document.get("cpu_moe"):
        found.append(f"experts of the first {document['cpu_moe']} blocks in RAM")
    slots = document["parallel"]
    found.append(f"{slots} {'slot' if slots == 1 else 'slots'} of {document['ctx']} tokens")
    found.append(f"KV {cell(document['kv_type'])}")
    found.append(f"micro-batch {document.get('n_ubatch', 'n/a')}")
    for name, label in (("mmproj", "projector"), ("draft", "draft model")):
        if document.get(name):
            found.append(f"{label} {'on the GPU' if document[name] == 'gpu' else 'in RAM'}")
    found += [f"adapter {cell(one['name'])} x {one['scale']:g}" for one in document.get("adapters") or ()]
    return found


def memory(document: Document) -> None:
    """Where the memory of each place goes; the figures of a line add up."""
    names = {"kv": "KV", "overhead": "other"}
    columns = tuple(names.get(figure, figure) for figure in _FIGURES)
    made = table("MiB", *columns, right=columns)
    guessed = False
    for place in [*document["devices"], document["host"]]:
        cells = [_figure(place, figure) for figure in _FIGURES]
        guessed = guessed or any(text.startswith("~") for text in cells)
        made.add_row("RAM" if place["name"] == "Host" else cell(place["name"]), *cells)
    show(made)
    say_wrapped("other: the driver; of RAM the engine's process and what GPUs share of it.")
    if guessed:
        say("~ computed or typical; what has no ~ was measured or read.")


def _figure(place: Mapping[str, Any], figure: str) -> str:
    """Whole MiB, with `~` for what was not measured."""
    value = place.get(figure)
    if value is None:
        return "n/a"
    computed, typical = place.get("how") != "measured", place.get("overhead_how") != "learned"
    guessed = {
        "model": computed, "kv": computed, "compute": computed, "overhead": typical,
        "spare": computed or typical,
    }.get(figure, False)  # fmt: skip
    number = round(value / MIB)
    return f"~{number}" if guessed and number else str(number)


def speed_line(document: Document) -> str | None:
    """The estimate, and what was seen here only when it was."""
    speed = document.get("speed")
    if speed is None:
        return None
    parts = []
    if speed["decode"] is not None:
        text = f"~{speed['decode']:.3g} tokens/s (~{speed['decode_full']:.3g} with a full context)"
        source = _SOURCES.get(speed["how"])
        parts.append(f"{text}, {source}" if source else text)
    words = {"cold": "{} cold", "hot": "{} hot", "battery": "{} on battery"}
    seen = {name: value for name, value in (speed.get("seen") or {}).items() if value is not None}
    if seen:
        parts.append(
            "seen here: " + ", ".join(words[name].format(f"{value:.3g}") for name, value in seen.items())
        )
    return "Speed of one request: " + "; ".join(parts)


def no_speed(document: Document) -> None:
    """How to get a speed for a described card without a name."""
    machine = document.get("machine", "here")
    if machine == "here" or all(gpu["bandwidth"] is not None for gpu in machine["gpus"]):
        return
    say_wrapped(
        "The speed needs the card's name, or its memory's: --gpu \"8GiB,RTX 4060\", --gpu 8GiB,272GB/s"
    )


def reasons(lines: Sequence[Any]) -> None:
    """What was chosen, what had to give, and the verdict; the account stands in the table."""
    read = [line if isinstance(line, Mapping) else {"code": "", "text": line} for line in lines]
    gave = [line for line in read if line["code"] in _GAVE]
    verdict = [line for line in read if line["code"] in _VERDICT]
    left_out = {*_GAVE, *_VERDICT, *_ACCOUNT, _SPEED}
    for title, group in (
        ("Chosen", [line for line in read if line["code"] not in left_out]),
        ("What had to give", gave),
        ("Verdict", verdict),
    ):
        if group:
            say(title)
            for line in group:
                say_wrapped(clean_line(str(line["text"]), 1_000), "  - ")


def flags(document: Document) -> None:
    """To be pasted, so on one line however long. The model file is not among them."""
    given = [clean_line(str(flag), 200) for flag in document["flags"]]
    say("Flags for llama-server")
    say("  " + " ".join(given))
    if "-dev" in given and document.get("machine", "here") != "here":
        say_wrapped("(-dev: put the engine's own names there, as `llama-server --list-devices` says)", "  ")
