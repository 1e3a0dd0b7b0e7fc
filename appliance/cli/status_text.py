"""The status document as text. The same snapshot that `status --json` prints and the UI shows."""

from __future__ import annotations

import time
from collections.abc import Iterator

from appliance.client import EngineRow, GpuRow, StatusSnapshot
from appliance.client.documents import UsedDevice
from appliance.units import duration, size

GLYPHS = {"ready": "●", "busy": "●", "loading": "◐", "starting": "◐", "stopping": "◐", "failed": "✖"}


def status_lines(snapshot: StatusSnapshot) -> Iterator[str]:
    """What runs, then the machine, then what to know."""
    running = snapshot.daemon
    uptime = duration(None if running.started is None else time.time() - running.started)
    yield f"Daemon    {running.url}/v1 · pid {running.pid} · up {uptime} · version {running.version}"
    model = snapshot.model
    yield f"Model     {model.ref} · {size(model.size)}" if model else "Model     none: appliance up MODEL"
    for engine in snapshot.engines:
        yield from _engine(engine)
    for gpu in snapshot.gpus:
        yield _gpu(gpu)
    if not snapshot.gpus:
        yield _no_gpu(snapshot)
    speed = "" if snapshot.factor in (None, 1.0) else f" · speed x{snapshot.factor:.2f}"
    yield f"Heat      {snapshot.thermal or 'n/a'}{speed}"
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
    return f"GPU       none whose driver tells its state; the engine uses {'; '.join(map(_device, used))}"


def _device(device: UsedDevice) -> str:
    """`Vulkan0: llvmpipe (LLVM 15), made of the CPU`."""
    about = f": {device.description}" if device.description else ""
    return device.name + about + (", made of the CPU" if device.software else "")


def _engine(engine: EngineRow) -> Iterator[str]:
    software = bool(engine.devices) and all(device.software for device in engine.devices)
    where = f"on {', '.join(device.name for device in engine.devices)}" if software else "on the GPU"
    layers = (
        "n/a" if engine.n_layer is None else f"{_n(engine.gpu_layers)} of {engine.n_layer + 1} layers {where}"
    )
    yield f"Engine    {GLYPHS.get(engine.state, '○')} {engine.state} · {engine.build} · pid {_n(engine.pid)}"
    yield (
        f"          {layers} · {_n(engine.ctx)} tokens per request · "
        f"{_n(engine.slots_busy)} of {_n(engine.parallel)} slots busy · {_speed(engine.tokens_per_second)}"
    )
    if engine.error:
        yield f"          ✖ {engine.error}" + (f" {engine.cause}" if engine.cause else "")
    if engine.hint:
        yield f"          Do: {engine.hint}"


def _gpu(gpu: GpuRow) -> str:
    limit = "" if gpu.slowdown_at is None else f" (slows at {gpu.slowdown_at:.0f})"
    temperature = "n/a" if gpu.temperature is None else f"{gpu.temperature:.0f} °C{limit}"
    use = "n/a" if gpu.utilisation is None else f"{gpu.utilisation:.0f} %"
    power = "n/a" if gpu.power is None else f"{gpu.power:.0f} W"
    free = f"{size(gpu.free)} free of {size(gpu.total)}"
    return f"GPU       {gpu.name} · {free} · {temperature} · {use} · {power} · {gpu.state or 'unknown'}"


def _n(value: int | None) -> str:
    return "n/a" if value is None else str(value)


def _speed(value: float | None) -> str:
    return "n/a tokens/s" if value is None else f"{value:.1f} tokens/s"
