"""The GPU panel: memory split into engine, others and free; use, power and heat on fixed scales.

Without a GPU one quiet line says that the CPU does the work. That is not an error.
"""

from __future__ import annotations

from appliance.client import GpuRow, StatusSnapshot
from tui import glyphs
from tui.frame import PanelView
from tui.graphs import Spark, bar
from tui.lines import Line, Span, cells, joined, line, plain
from tui.state import View
from tui.words import NA, gib, number, percent

_WITHOUT_GPU = ("gpu_lost", "gpu_trouble", "no_gpu_engine")
"""Notes that say why there is none."""
_STALE_S = 5.0
_COOLEST = 20.0
_SLOWDOWN_GUESS = 100.0
"""Top of the temperature scale where the threshold can't be read."""


def gpu_panel(view: View, width: int, compact: bool) -> PanelView:
    """The panel for `width` columns of text."""
    shot = view.snapshot
    if shot is None:
        return PanelView("GPU", (line(Span(NA, "muted")),))
    if not shot.gpus:
        return PanelView("GPU", (line(f"Running on CPU: {_cpu_note(shot)}"),), heat(shot))
    several = len(shot.gpus) > 1
    rows: list[Line] = []
    for number_, gpu in enumerate(shot.gpus):
        if several:
            rows.append(line(Span(f"{number_} · {gpu.name or gpu.id}", "strong"), *_age(gpu)))
        drawn = _short(view, gpu, width) if compact or several else _long(view, gpu, width)
        rows += [line(Span(plain(row), "muted")) for row in drawn] if _age(gpu) else drawn
    if shot.thermal_message and shot.thermal not in (None, "cool", "unknown"):
        rows.append(line(Span(f"! {shot.thermal_message}", "warn")))
    first = shot.gpus[0]
    title = f"{len(shot.gpus)} GPUs" if several else f"GPU 0 · {first.name or first.id}"
    pace = () if compact else line(f"every {view.interval_s:g} s · {spark_width(width)} s shown")
    return PanelView(title, tuple(rows), joined([heat(shot), () if several else _age(first), pace]))


def spark_width(width: int) -> int:
    """Columns of a trend line in a panel of `width`; one sample each."""
    return max(10, min(100, width - 50))


def heat(shot: StatusSnapshot) -> Line:
    """Heat state, and the measured speed factor when it is known; a factor without a state says nothing."""
    if shot.thermal in (None, "unknown"):
        return (glyphs.mark(shot.thermal, f"heat {NA}"),)
    factor = () if shot.factor is None else line(f"speed ×{shot.factor:.2f}")
    return joined([(glyphs.mark(shot.thermal),), factor])


def _cpu_note(shot: StatusSnapshot) -> str:
    note = next((n for n in shot.notes if n.code in _WITHOUT_GPU), None)
    if note is not None and note.detail:
        return note.detail
    reason = next((r for r in shot.plan.reasons if "gpu" in r.code.lower()), None) if shot.plan else None
    return reason.text if reason is not None else "no GPU was found"


def _age(gpu: GpuRow) -> Line:
    old = gpu.age_s is not None and gpu.age_s >= _STALE_S
    return line(Span(f"! {gpu.age_s:.0f} s old", "warn")) if old else ()


def _memory(gpu: GpuRow) -> tuple[int | None, int | None]:
    """Used by the engine, used by others."""
    if gpu.total is None or gpu.free is None:
        return gpu.used_by_engine, None
    used = gpu.total - gpu.free
    return gpu.used_by_engine, max(0, used - (gpu.used_by_engine or 0))


def _memory_bar(gpu: GpuRow, width: int) -> Span:
    engine, other = _memory(gpu)
    if gpu.total is None or other is None:
        return Span(" " * width)
    return Span(bar([(engine or 0, "█"), (other, "▓")], gpu.total, width), "accent")


def _long(view: View, gpu: GpuRow, width: int) -> list[Line]:
    engine, other = _memory(gpu)
    used = None if gpu.total is None or gpu.free is None else gpu.total - gpu.free
    left = f"Memory  {gib(used):>5} of {gib(gpu.total)} GiB  "
    right = f"  engine {gib(engine, 2)} · other {gib(other, 2)} · free {gib(gpu.free, 2)}"
    wide = max(10, min(100, width - cells(left) - cells(right)))
    columns = spark_width(width)

    def trend(name: str, low: float, high: float) -> Span:
        return Span(Spark(low, high).draw(view.history.get(f"{gpu.id}.{name}"), columns), "accent")

    limit = gpu.power_limit
    powers = [p for p in view.history.get(f"{gpu.id}.power") if p is not None]
    power, temperature = _unit(gpu.power, "W"), _unit(gpu.temperature, "°C")
    return [
        line(left, _memory_bar(gpu, wide), right),
        line(f"Util    {percent(gpu.utilisation):>7}  ", trend("utilisation", 0, 100)),
        line(
            f"Power   {power:>7}  ",
            trend("power", 0, limit or max([*powers, 1.0])),
            f"  limit {_unit(limit, 'W')}",
        ),
        line(
            f"Temp    {temperature:>7}  ",
            trend("temperature", _COOLEST, gpu.slowdown_at or _SLOWDOWN_GUESS),
            f"  {_threshold(gpu)}",
        ),
    ]


def _threshold(gpu: GpuRow) -> str:
    slows, reasons = f"slows at {_unit(gpu.slowdown_at, '°C')}", _reasons(gpu)
    return f"{slows} · {reasons}" if reasons else slows


def _reasons(gpu: GpuRow) -> str:
    """Why its clocks are lowered; nothing when they are not."""
    if gpu.reasons is None:
        return f"throttling {NA}"
    return ", ".join(reason.replace("_", " ") for reason in gpu.reasons)


def _unit(value: float | None, unit: str) -> str:
    return NA if value is None else f"{number(value)} {unit}"


def _short(view: View, gpu: GpuRow, width: int) -> list[Line]:
    engine, other = _memory(gpu)
    used = None if gpu.total is None or gpu.free is None else gpu.total - gpu.free
    left = f"Mem  {gib(used)}/{gib(gpu.total)} GiB "
    right = f"  engine {gib(engine, 2)}  other {gib(other, 2)}"
    wide = max(8, min(60, width - cells(left) - cells(right)))
    columns = max(10, min(60, width - 46))
    trend = Spark(0, 100).draw(view.history.get(f"{gpu.id}.utilisation"), columns)
    facts = f"  {_unit(gpu.power, 'W')}  {_unit(gpu.temperature, '°C')}"
    why = Span(f"  {_reasons(gpu)}" if _reasons(gpu) else "", "muted" if gpu.reasons is None else "warn")
    return [
        line(left, _memory_bar(gpu, wide), right),
        line(f"Util {percent(gpu.utilisation):>5}  ", Span(trend, "accent"), facts, why),
    ]
