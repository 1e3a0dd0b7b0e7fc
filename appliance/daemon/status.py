"""The status document of `status --json`, `/api/status` and the UI, made from snapshots alone."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from appliance.daemon import differences
from appliance.daemon.download import Download
from appliance.daemon.machine import memory_sources
from appliance.daemon.machine.awake import AwakeView
from appliance.daemon.prompt_values import PromptCacheSnapshot
from appliance.daemon.queues import batch_notes
from appliance.daemon.record import Record
from appliance.daemon.seated import Seated
from appliance.daemon.served import ServingSnapshot, load_row
from appliance.gateway.admission import QueueSnapshot
from appliance.journal import Row, Today
from appliance.monitor import MonitorSnapshot, Pressure, pressure_on
from appliance.operations.machine.survey import Note
from appliance.paths import Paths
from appliance.text import clean_line
from appliance.units import duration


@dataclass(frozen=True, slots=True)
class Parts:
    """The snapshots that the document is made of."""

    record: Record
    serving: ServingSnapshot
    """The default model."""
    seats: tuple[Seated, ...]
    """All models that are known, loaded or not."""
    monitor: MonitorSnapshot
    awake: AwakeView
    queue: QueueSnapshot | None
    remotes: tuple[Mapping[str, Any], ...]
    downloads: tuple[Download, ...]
    today: Today
    running: tuple[Mapping[str, Any], ...]
    recent: tuple[Row, ...]
    halted: bool
    """A person stopped the engines: requests load none until a person does."""
    prompts: PromptCacheSnapshot
    policy: str
    paths: Paths
    problems: tuple[Note, ...] = ()
    """What is wrong with files of this user (the list of downloads, the catalog), and what can't be saved."""


def document(parts: Parts) -> dict[str, Any]:
    """The JSON document. Unknown values are null."""
    serving, heat, gpus = parts.serving, parts.monitor, _gpus(parts)
    ref = serving.ref
    return {
        "daemon": {
            "pid": parts.record.pid,
            "version": parts.record.version,
            "url": parts.record.url,
            "started": parts.record.start_time,
        },
        "model": None
        if ref is None
        else {"ref": ref.ref, "name": ref.model.name, "quant": ref.quant, "size": ref.variant.size},
        "plan": None if serving.plan is None else serving.plan.to_json(),
        "engines": [_row(seat) for seat in _in_order(parts.seats)],
        "gpus": [asdict(row.view) | {"disagrees": row.told()} for row in gpus],
        "cpu": None if heat.cpu is None else asdict(heat.cpu),
        "thermal": heat.thermal,
        "factor": heat.factor,
        "eases": heat.eases,
        "power": heat.power,
        "thermal_message": heat.message,
        "sensors": {
            "active": heat.active,
            "age_s": heat.age_s,
            "stale": heat.stale,
            "restarts": heat.restarts,
            "skipped": list(heat.skipped),
        },
        "keep_awake": asdict(parts.awake),
        "queue": _queue(parts.queue),
        "remotes": [dict(remote) for remote in parts.remotes],
        "downloads": [download.to_json() for download in parts.downloads],
        "today": parts.today.to_json(),
        "notes": [note.to_json() for note in (*parts.problems, *_notes(parts, gpus))],
        "requests": {
            "running": [dict(row) for row in parts.running],
            "recent": [row.to_json() for row in parts.recent],
        },
        "gateway": {"url": f"{parts.record.url}/v1"},
        "routing": {"policy": parts.policy},
        "halted": parts.halted,
        "saved_prompts": asdict(parts.prompts),
        "host": _host(heat, parts.paths),
    }


def _gpus(parts: Parts) -> tuple[memory_sources.GpuRow, ...]:
    others = (seat.serving for seat in parts.seats if not seat.default)
    return memory_sources.gpu_rows(parts.monitor.gpus, (parts.serving, *others))


def _in_order(seats: Sequence[Seated]) -> list[Seated]:
    """Those that are shown: the default first, then as they were used."""
    shown = [seat for seat in seats if seat.shown and seat.serving.ref is not None]
    return sorted(shown, key=lambda seat: (not seat.default, -seat.last_used))


def _row(seat: Seated) -> dict[str, Any]:
    row = _engine(seat.serving) | load_row(seat.serving)
    return row | {
        "default": seat.default,
        "pinned": seat.pinned,
        "waiting": seat.queue.waiting,
        "wanted": seat.wanted,
        "makes_way": seat.makes_way,
        "last_used": seat.last_used,
        "unload_at": seat.unload_at,
        "load_s": seat.load_s,
    }


def _notes(parts: Parts, gpus: Iterable[memory_sources.GpuRow]) -> Iterable[Note]:
    """Of the machine, and of each model that is loaded; what is said of one is not said again."""
    told = [*notes(parts.serving, parts.monitor), *memory_sources.notes(gpus)]
    told += batch_notes(parts.queue)
    others = [seat.serving for seat in parts.seats if not seat.default and seat.serving.engine is not None]
    for serving in others:
        name = serving.ref.ref if serving.ref is not None else "?"
        for note in model_notes(serving):
            if note not in told:
                told.append(replace(note, detail=f"{name}: {note.detail}"))
    return told


def notes(serving: ServingSnapshot, heat: MonitorSnapshot) -> Iterable[Note]:
    """What a person should know about the machine; none of it is about one answer."""
    looked = serving.survey
    unused = looked.gpu_unused() if looked is not None else None
    if unused is not None and serving.lost is None:
        yield Note(unused.code, unused.detail, unused.todo, serving.loaded_since)
    if looked is not None and (replaced := looked.replaced()) is not None:
        yield replaced
    if looked is not None and looked.choice is not None and looked.choice.build.note:
        yield Note("engine_build", looked.choice.build.note, None, serving.loaded_since)
    yield from model_notes(serving)
    if heat.thermal == "critical":
        yield _too_hot(pressure_on(heat, ()))
    if heat.stale:
        yield Note(
            "sensor_stale",
            heat.message or "The sensors don't answer; the values shown are old.",
            "They are started again by themselves; if it stays so, update the GPU's driver or restart.",
            None,
        )
    if heat.power == "battery":
        percent = heat.battery.percent if heat.battery is not None else None
        charge = "" if percent is None else f" ({percent:.0f} %)"
        yield Note(
            "on_battery", f"Running on battery{charge}: expect lower speed.", "Plug in the charger.", None
        )


def _too_hot(danger: Pressure) -> Note:
    why = danger.why or "The machine is critically hot"
    end = "" if danger.ends_in_s is None else f" It may end in {duration(danger.ends_in_s)} at the earliest."
    todo = "Free its air vents and let it rest; requests that may leave go to a remote meanwhile."
    return Note("too_hot", f"{why}: nothing new is generated here.{end}", todo, None)


def model_notes(serving: ServingSnapshot) -> Iterable[Note]:
    """What a person should know about one loaded model."""
    if serving.plan is not None and not serving.plan.measured:
        yield Note(
            "plan_estimated",
            "The plan is computed; this engine can't measure it before the load.",
            None,
            serving.loaded_since,
        )
    yield from differences.notes(serving)
    if serving.replanned is not None:
        yield serving.replanned


def file_problems(
    downloads: str | None, catalog: str | None, lost: int = 0, why: str | None = None
) -> tuple[Note, ...]:
    """Files that could not be used, as notes. `lost` rows of the journal, and `why` the last one was."""
    found = []
    if downloads is not None:
        found.append(Note("downloads_forgotten", downloads, "Start the downloads again; they go on.", None))
    if catalog is not None:
        detail = f"The last good catalog is used: {clean_line(catalog, 300)}"
        found.append(Note("catalog_broken", detail, "Mend the file; it is read again by itself.", None))
    if lost:
        rows = "1 row" if lost == 1 else f"{lost} rows"
        detail = f"{rows} of the journal could not be written since the start"
        detail += f": {clean_line(why, 300)}" if why else "; the disk was too slow."
        found.append(Note("journal_lost", detail, "Free disk space on the state folder.", None))
    return tuple(found)


def _engine(serving: ServingSnapshot) -> dict[str, Any]:
    """The engine's row; while none runs, the state and what stands in its way."""
    assert serving.ref is not None
    error = serving.error
    if serving.engine is None:
        return _absent_engine(serving)
    row = {part.name: getattr(serving.engine, part.name) for part in fields(serving.engine)}
    row["buffers"] = {device: dict(use) for device, use in serving.engine.buffers.items()}
    row["crash"] = None if serving.engine.crash is None else asdict(serving.engine.crash)
    row["devices"] = _devices(serving)
    row["adapters"] = _adapters(serving)
    row["model"] = serving.ref.ref
    row["state"] = serving.state
    if error is not None and not row["error"]:
        row |= {"error": error.message, "cause": error.cause, "hint": error.hint}
    return row


def _devices(serving: ServingSnapshot) -> list[dict[str, Any]]:
    """The devices that the plan uses, as the engine lists them. `software`: made of the CPU, no GPU."""
    build = serving.survey.choice.build if serving.survey and serving.survey.choice else None
    used = {device.name for device in serving.plan.devices} if serving.plan is not None else set()
    return [
        {"name": device.name, "description": device.description, "software": device.software}
        for device in (build.devices if build is not None else ())
        if device.name in used
    ]


def _adapters(serving: ServingSnapshot) -> list[dict[str, Any]]:
    """The LoRA adapters that change the model: what answers is not the model alone."""
    return [asdict(one) for one in serving.plan.adapters] if serving.plan is not None else []


def _absent_engine(serving: ServingSnapshot) -> dict[str, Any]:
    assert serving.ref is not None
    error = serving.error
    build = serving.survey.choice.build if serving.survey and serving.survey.choice else None
    unknown = (
        "pid", "gpu_layers", "ctx", "parallel", "slots_busy", "tokens_per_second", "restarts", "started_at",
        "ready_at", "log_file",
    )  # fmt: skip
    return dict.fromkeys(unknown) | {
        "adapters": _adapters(serving),
        "id": serving.ref.ref,
        "model": serving.ref.ref,
        "kind": build.kind if build else None,
        "build": build.build if build else None,
        "state": serving.state,
        "n_layer": serving.plan.n_layer if serving.plan else None,
        "error": error.message if error else None,
        "cause": error.cause if error else None,
        "hint": error.hint if error else None,
        "last_lines": list(getattr(error, "lines", ())),
    }


def _queue(queue: QueueSnapshot | None) -> dict[str, Any]:
    if queue is None:
        return {"waiting": 0, "running": 0, "lanes": {}, "predicted_wait": None, "eases": None}
    return {
        "waiting": queue.waiting, "running": queue.running, "lanes": dict(queue.lanes),
        "predicted_wait": queue.predicted_wait,
        "eases": None if queue.easing is None else queue.easing.why,
    }  # fmt: skip


def _host(heat: MonitorSnapshot, paths: Paths) -> dict[str, Any]:
    try:
        free = shutil.disk_usage(paths.models).free
    except OSError:
        free = None
    battery = heat.battery
    return {
        "ram_total": heat.ram_total,
        "ram_available": heat.ram_available,
        "swap_total": heat.swap_total,
        "swap_used": heat.swap_used,
        "cpu_percent": heat.cpu_percent,
        "disk_free": free,
        "battery": None if battery is None else asdict(battery),
    }
