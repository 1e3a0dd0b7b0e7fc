"""The Engine panel: what runs, how it is split and why, how fast it is; or what went wrong and what to do."""

from __future__ import annotations

from typing import cast

from appliance.client import EngineRow, PlanDocument, StatusSnapshot
from appliance.units import about, size
from tui import glyphs
from tui.frame import PanelView
from tui.graphs import bar
from tui.lines import Line, Span, Tone, joined, joined_within, line, wrap, wrap_line
from tui.state import View, engine_mark
from tui.views.residents import MOST_COMPACT, other_lines, stays
from tui.views.route import queue_words, remote_words, today_words
from tui.words import NA, ago, number, percent

LABEL = 9
"""Columns of a row's label."""


def label(word: str) -> Span:
    """The muted word at the start of a row."""
    return Span(word.ljust(LABEL), "muted")


def engine_panel(view: View, width: int, compact: bool) -> PanelView:
    """The panel for `width` columns of text."""
    shot = view.snapshot
    match view.phase:
        case "connecting":
            return _connecting(view, width)
        case "empty":
            return _welcome(view)
        case "failed":
            return _failed(view, width, compact)
    assert shot is not None
    engine = shot.engine
    seen = line("last seen ") if view.lost is not None else ()
    scope = joined([(*seen, engine_mark(shot)), _since(engine, view.moment), _stay(shot, view.moment)])
    rows = _short(shot, engine, view, width) if compact else _long(shot, engine, width)
    if shot.halted and view.phase == "stopped":
        told = _halted(width)  # in the short form in place of what only a loaded model has
        rows = (rows[0], *told, rows[-1]) if compact else (*rows, *told)
    if view.phase == "loading":
        rows = (*rows[:2], *_progress(engine, view, width))
    others = other_lines(view, width, MOST_COMPACT) if compact else ()
    return PanelView("Engine", (*rows, *others), scope)


def _stay(shot: StatusSnapshot, now: float) -> Line:
    """That it is pinned, or until when it stays."""
    engine = shot.engine
    if engine is None or not engine.serves:
        return ()
    return line("pinned") if engine.pinned else stays(shot, engine, now)


def _since(engine: EngineRow | None, now: float) -> Line:
    if engine is None or engine.ready_at is None or engine.state not in ("ready", "busy"):
        return ()
    return line(f"up {ago(engine.ready_at, now)}")


def _long(shot: StatusSnapshot, engine: EngineRow | None, width: int) -> tuple[Line, ...]:
    return (
        line(label("Model"), *_model(shot)),
        line(label("Split"), *split(shot, width - LABEL)),
        line(label("Why"), *why(shot.plan, width - LABEL)),
        line(label("Context"), *joined([_context(shot), _kv(shot.plan)])),
        line(label("Speed"), *joined([_speed(engine), _slots(engine)])),
        line(label("Process"), *_process(engine)),
    )


def _short(shot: StatusSnapshot, engine: EngineRow | None, view: View, width: int) -> tuple[Line, ...]:
    model = _model(shot)
    room = width - sum(len(span.text) for span in model) - 3
    first = joined([model, split(shot, room)]) if room >= 34 else model
    return (
        first,
        line(*(split(shot, width) if room < 34 else why(shot.plan, width))),
        joined([_context(shot), _slots(engine), _speed(engine)]),
        joined_within([remote_words(shot), queue_words(shot), today_words(shot)], width),
    )


def _model(shot: StatusSnapshot) -> Line:
    if shot.model is None:
        ref = shot.engine.model if shot.engine else None
        return line(Span(ref or NA, "strong"))
    name = Span(shot.model.name or shot.model.ref, "strong")
    return line(name, f"  {shot.model.quant or NA}  {size(shot.model.size)}")


def split(shot: StatusSnapshot, width: int) -> Line:
    """`GPU 35 ████░░░ 30 CPU  of 65`. A split that is only planned is marked by `~`."""
    engine, plan = shot.engine, shot.plan
    n_layer = (engine.n_layer if engine else None) or (plan.n_layer if plan else None)
    read_back = engine.gpu_layers if engine else None
    on_gpu = read_back if read_back is not None else plan.gpu_layers if plan else None
    if n_layer is None or on_gpu is None:
        return line(NA)
    total = n_layer + 1  # llama.cpp counts the output head as one more
    if on_gpu <= 0 and not shot.gpus:
        return line(f"all {total} layers on the CPU")
    on_gpu = max(0, min(on_gpu, total))
    about = "" if read_back is not None else "~"
    left, right = f"{about}GPU {on_gpu} ", f" {total - on_gpu} CPU of {total}"
    cells = max(8, min(40, width - len(left) - len(right)))
    planned = plan.gpu_layers if plan else None
    note = f" (planned {planned})" if planned not in (None, on_gpu) and read_back is not None else ""
    return line(
        left, Span(bar([(on_gpu, "█")], total, cells - len(note)), "accent"), right, Span(note, "warn")
    )


def why(plan: PlanDocument | None, width: int) -> Line:
    """The plan's first reason, and whether its numbers were measured (in words where there is room)."""
    if plan is None or not plan.reasons:
        return line(NA)
    text = plan.reasons[0].text
    if plan.measured is None:
        return line(text)
    glyph, word, tone = (glyphs.DONE, "measured", "ok") if plan.measured else ("~", "estimated", "muted")
    room = len(glyph) + len(word) + 2 + len(text) <= width
    return line(Span(f"{glyph} {word}: " if room else f"{glyph} ", cast("Tone", tone)), text)


def _context(shot: StatusSnapshot) -> Line:
    engine, plan = shot.engine, shot.plan
    ctx = (engine.ctx if engine else None) or (plan.ctx if plan else None)
    return line(f"{number(ctx)} per request")


def _kv(plan: PlanDocument | None) -> Line:
    if plan is None:
        return line(f"KV {NA}")
    parts = [d.kv for d in (*plan.devices, plan.host) if d is not None and d.kv is not None]
    return line(f"KV {plan.kv_type or NA} {size(sum(parts)) if parts else NA}")


def _slots(engine: EngineRow | None) -> Line:
    if engine is None or engine.parallel is None:
        return line(f"slots {NA}")
    busy = NA if engine.slots_busy is None else engine.slots_busy
    return line(f"slots {busy}/{engine.parallel}")


def _speed(engine: EngineRow | None) -> Line:
    decode = engine.tokens_per_second if engine else None
    prefill = engine.prefill_per_second if engine else None
    decode_words = line(f"decode {NA}" if decode is None else f"decode {number(decode, 1)} t/s")
    return joined([line(f"prefill {number(prefill)} t/s") if prefill is not None else (), decode_words])


def _process(engine: EngineRow | None) -> Line:
    if engine is None or engine.state == "absent":
        return line("not running; ", Span("s", "accent"), " starts it")
    pid = NA if engine.pid is None else engine.pid
    restarts = line(Span(f"restarts {engine.restarts}", "warn")) if engine.restarts else ()
    return joined([line(engine.build or engine.kind or NA), line(f"pid {pid}"), restarts])


def _halted(width: int) -> tuple[Line, ...]:
    words = line(
        "stopped by a person: requests load nothing until ",
        Span("appliance models load MODEL", "accent"),
        " or key ",
        Span("r", "accent"),
    )
    return wrap_line(words, width, most=3)


def _progress(engine: EngineRow | None, view: View, width: int) -> tuple[Line, ...]:
    if engine is None:
        return ()
    spent = ago(engine.started_at, view.moment)
    whole = "" if engine.load_estimate_s is None else f", takes ~{about(engine.load_estimate_s)}"
    share = engine.load_progress
    meter = "" if share is None else f"{bar([(share, '█')], 1.0, 24)} {percent(share * 100)} · "
    tail = [line(Span("  " + text, "muted")) for text in engine.last_lines[-3:]]
    return (line(label("Loading"), Span(meter, "accent"), f"{spent} so far{whole}"), *tail)


def _connecting(view: View, width: int) -> PanelView:
    if view.lost is None:
        return PanelView("Engine", (line("Asking the appliance …"),), (engine_mark(None),))
    parts = (view.lost.message, view.lost.cause, view.lost.hint)
    rows = [line(text) for part in parts if part for text in wrap(part, width, 3)]
    return PanelView("No contact", tuple(rows), (Span(f"{glyphs.FAILED} daemon lost", "bad"),), "bad")


def _welcome(view: View) -> PanelView:
    shot = view.snapshot
    assert shot is not None
    done, open_ = Span(f"  {glyphs.DONE} ", "ok"), Span(f"  {glyphs.STOPPED} ", "muted")
    gpus = ", ".join(f"{g.name or g.id}, {size(g.total)}, {size(g.free)} free" for g in shot.gpus)
    gpu = (
        line(done, label("GPU"), gpus)
        if gpus
        else line(open_, label("GPU"), "none found: models run on the CPU")
    )
    return PanelView(
        "Welcome",
        (
            *(_halted(70) if shot.halted else (line("No model is loaded yet."),)),
            (),
            line(done, label("Gateway"), f"serving {shot.gateway_url or NA}"),
            gpu,
            line(open_, label("Model"), "none loaded"),
            (),
            line("In another terminal:"),
            line(Span("  appliance models list", "accent"), "           what there is, and what is here"),
            line(Span("  appliance models pull MODEL", "accent"), "     downloads and verifies one"),
            line(Span("  appliance plan MODEL", "accent"), "            shows how it fits this machine"),
        ),
        (engine_mark(shot),),
    )


def _failed(view: View, width: int, compact: bool) -> PanelView:
    shot = view.snapshot
    assert shot is not None
    engine = shot.engine
    assert engine is not None
    rows = _labelled("What", engine.error or "The engine ended without a reason.", width)
    if engine.cause:
        rows += _labelled("Why", engine.cause, width)
    if engine.hint:
        rows += _labelled("Do", engine.hint, width)
    keys = line(
        Span("r", "accent"), "  plan again and start    ", Span("l", "accent"), "  open the engine log"
    )
    rows.append((label("" if engine.hint else "Do"), *keys))
    rows += other_lines(view, width, MOST_COMPACT) if compact else ()
    shown = engine.last_lines[-3 if compact else -6 :]
    if shown:
        rows += [line(Span("Last lines", "muted")), *(line(Span(f"  {text}", "muted")) for text in shown)]
    scope = joined([(engine_mark(shot),), line(f"restarts {number(engine.restarts)}")])
    away = any(remote.state == "up" for remote in shot.remotes) and shot.policy != "local-only"
    still = "Requests still go to the remote." if away else "Requests are refused until it runs."
    if not away and any(row.serves for row in shot.others):
        still = "Requests for it are refused; other models answer."
    return PanelView("Engine", (joined([_model(shot), line(still)]), *rows), scope, "bad")


def _labelled(word: str, text: str, width: int) -> list[Line]:
    rows = wrap(text, width - LABEL, 3) or (NA,)
    return [line(label(word if at == 0 else ""), row) for at, row in enumerate(rows)]
