"""The status document as text. The same snapshot that `status --json` prints and the UI shows."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from appliance.cli.machine_text import gpu_lines, machine_lines
from appliance.cli.packing import packed, wrapped
from appliance.client import EngineRow, StatusSnapshot, UsedDevice
from appliance.units import about, duration, size

NO_DAEMON: Mapping[str, Any] = {
    "daemon": None, "engines": [], "gpus": [], "thermal": None, "queue": None, "remotes": [],
    "downloads": [], "today": None, "notes": [],
}  # fmt: skip
"""The document while none runs."""
GLYPHS = {"ready": "●", "busy": "●", "loading": "◐", "starting": "◐", "stopping": "◐", "failed": "✖"}


def status_lines(snapshot: StatusSnapshot, now: float | None = None) -> Iterator[str]:
    """What runs, then the machine, then what to know. `now` is Unix time, that of the clock by default."""
    now = time.time() if now is None else now
    running = snapshot.daemon
    uptime = duration(None if running.started is None else now - running.started)
    yield f"Daemon    {running.url}/v1 · pid {running.pid} · up {uptime} · version {running.version}"
    model = snapshot.model
    yield f"Model     {model.ref} · {size(model.size)}" if model else "Model     none: appliance up MODEL"
    if snapshot.halted:
        yield "State     stopped by a person: requests load nothing until"
        yield "          `appliance models load MODEL` (or key r in the UI)"
    for engine in snapshot.engines:
        yield from _engine(snapshot, engine, now)
    for gpu in snapshot.gpus:
        yield from gpu_lines(gpu)
    if not snapshot.gpus:
        yield _no_gpu(snapshot)
    yield from machine_lines(snapshot)
    queue = snapshot.queue
    yield f"Queue     {_n(queue.running)} running · {_n(queue.waiting)} waiting"
    for remote in snapshot.remotes:
        yield f"Remote    {remote.name} · {remote.state} · {remote.url}"
    for download in snapshot.downloads:
        yield f"Download  {download.ref} · {download.phase} · {size(download.done)} of {size(download.total)}"
    today = snapshot.today
    yield f"Today     {_n(today.local)} local · {_n(today.remote)} remote · {_n(today.errors)} errors"
    for note in snapshot.notes:
        yield f"Note      {note.detail or note.code}"
        if note.todo:
            yield f"          Do: {note.todo}"


def _no_gpu(snapshot: StatusSnapshot) -> str:
    """No driver tells of a GPU; the engine may use a device all the same."""
    used = [device for engine in snapshot.engines if engine.gpu_layers for device in engine.devices]
    if not used:
        return "GPU       none found: running on CPU"
    names = "; ".join(dict.fromkeys(map(_device, used)))
    return f"GPU       none whose driver tells its state; the engine uses {names}"


def _device(device: UsedDevice) -> str:
    """`Vulkan0: llvmpipe (LLVM 15), made of the CPU`."""
    described = f": {device.description}" if device.description else ""
    return device.name + described + (", made of the CPU" if device.software else "")


def _engine(snapshot: StatusSnapshot, engine: EngineRow, now: float) -> Iterator[str]:
    """One model in a few words, on lines of at most `WIDTH` characters."""
    glyph, state = GLYPHS.get(engine.state, "○"), {"absent": "not loaded"}.get(engine.state, engine.state)
    marks = ["default" if engine.default else "", "pinned" if engine.pinned else ""]
    yield from packed("Engine", [f"{glyph} {state}", engine.ref, *marks])
    yield from packed("", [*_does(engine, now), _waiting(engine), _stays(snapshot, engine, now)])
    if engine.serves:
        yield from packed("", [f"{_n(engine.ctx)} tokens per request", _speed(engine.tokens_per_second)])
        yield from packed("", [engine.build or "n/a", f"pid {_n(engine.pid)}", _loaded(engine)])
    if engine.adapters:
        yield from packed("", [f"with {', '.join(one.name or '?' for one in engine.adapters)}"])
    if engine.error:
        yield from wrapped(f"✖ {engine.error}" + (f" {engine.cause}" if engine.cause else ""))
    if engine.hint:
        yield from wrapped(f"Do: {engine.hint}")


def _does(engine: EngineRow, now: float) -> list[str]:
    """Where its layers are and how many slots are busy; of one that is on its way, how far it is."""
    if engine.state in ("starting", "loading"):
        so_far = None if engine.started_at is None else f"for {about(now - engine.started_at)}"
        share = None if engine.load_progress is None else f"{engine.load_progress:.0%}"
        return [part for part in (share, so_far, _whole(engine)) if part]
    if not engine.serves:
        return []
    return [_layers(engine), f"{_n(engine.slots_busy)} of {_n(engine.parallel)} slots busy"]


def _whole(engine: EngineRow) -> str | None:
    """How long all of the load takes."""
    if engine.load_estimate_s is None:
        return None
    word = "usually" if engine.load_estimate_how == "seen" else "takes about"
    return f"{word} {about(engine.load_estimate_s)}"


def _loaded(engine: EngineRow) -> str:
    """How long the last load took, beside what its disk gives."""
    if engine.load_s is None:
        return ""
    mine, disk = engine.load_bytes_per_s, engine.disk_bytes_per_s
    beside = "" if mine is None or disk is None else f" at {_rate(mine)}, the disk gives {_rate(disk)}"
    return f"loaded in {about(engine.load_s)}{beside}"


def _rate(bytes_per_s: float) -> str:
    return f"{size(int(bytes_per_s))}/s"


def _layers(engine: EngineRow) -> str:
    if engine.n_layer is None:
        return "layers n/a"
    if engine.on_cpu:
        return f"all {engine.n_layer + 1} layers on the CPU"
    where = f"on {', '.join(device.name for device in engine.devices)}" if engine.software else "on the GPU"
    return f"{_n(engine.gpu_layers)} of {engine.n_layer + 1} layers {where}"


def _waiting(engine: EngineRow) -> str:
    return f"{engine.queued} waiting" if engine.queued else ""


def _stays(snapshot: StatusSnapshot, engine: EngineRow, now: float) -> str:
    """Until when it stays loaded; nothing where no end is in sight."""
    if engine.makes_way:
        return f"makes way for {snapshot.makes_way_for(engine) or 'another model'}"
    return "" if engine.unload_at is None else f"unloads in {about(engine.unload_at - now)}"


def _n(value: int | None) -> str:
    return "n/a" if value is None else str(value)


def _speed(value: float | None) -> str:
    return "n/a tokens/s" if value is None else f"{value:.1f} tokens/s"
