"""Who tells a GPU's memory, and which differences between two sources are worth a word."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from appliance.daemon.machine.awake import AwakeView
from appliance.daemon.machine.memory_sources import Disagreement, GpuRow, gpu_rows, notes
from appliance.daemon.prompt_values import PromptCacheSnapshot
from appliance.daemon.record import Record
from appliance.daemon.served import ServingSnapshot
from appliance.daemon.status import Parts, document
from appliance.engines import Build, Choice, EngineState
from appliance.engines.values import EngineSnapshot
from appliance.hardware import Gpu, Machine
from appliance.journal import Today
from appliance.monitor import GpuView, MonitorSnapshot
from appliance.operations.machine.survey import Survey
from appliance.planning import DeviceMemory
from appliance.units import GIB, MIB
from tests.engines.launches import paths_in

CARD = Gpu("GPU-1", 0, "NVIDIA GeForce RTX 4090", "cuda", total=24564 * MIB, pci="0000:01:00.0")
VIEW = GpuView(
    "GPU-1", CARD.name, "cuda", 24564 * MIB, 20000 * MIB, None, 50.0, 90.0, (), 100.0, 450.0, 0.0, "cool",
    0.1, reserved=483 * MIB, memory_source="driver",
)  # fmt: skip
ARC = Gpu("pci:0000:03:00.0", 0, "Intel GPU (PCI 8086:56a0)", "vulkan", pci="0000:03:00.0")
BARE = GpuView(
    ARC.id, ARC.name, "vulkan", None, None, None, None, None, None, None, None, None, "unknown", 0.1
)


def device(name: str, text: str, total: int | None, free: int | None = None, **more: Any) -> DeviceMemory:
    backend = "cuda" if name.startswith("CUDA") else "rocm" if name.startswith("ROCm") else "vulkan"
    backend = "metal" if name.startswith("MTL") else backend
    return DeviceMemory(name, text, backend, total, free, **more)


def engine(state: EngineState = "ready", **buffers: float) -> EngineSnapshot:
    return EngineSnapshot(
        "m", "m", "llama-server", "b1", 1, state, 1, 1, 1, 1, 0, None, 0, None, None, None, None, None, (),
        None, None, {name: {"model": mib} for name, mib in buffers.items()},
    )  # fmt: skip


def serving(*devices: DeviceMemory, gpus: tuple[Gpu, ...] = (CARD,), **more: Any) -> ServingSnapshot:
    build = Build("llama-server", "/bin/llama-server", "1", "llama-server b1", devices, sees_gpu=True)
    machine = Machine(gpus=gpus, ram_total=64 * GIB, ram_available=50 * GIB)
    looked = Survey(machine, (build,), Choice(build, "the only one"), None)
    return replace(ServingSnapshot(state="ready", survey=looked, loaded_since=1.0), **more)


def only(views: tuple[GpuView, ...], *served: ServingSnapshot) -> GpuRow:
    (row,) = gpu_rows(views, served)
    return row


def test_the_driver_goes_first() -> None:
    row = only((VIEW,), serving(device("CUDA0", CARD.name, 24081 * MIB, 1)))
    assert row == GpuRow(VIEW)


@pytest.mark.parametrize(
    ("driver", "reserved", "told"),
    [
        (24564, 483, 24081),  # CUDA leaves out what the driver reserves
        (32607, 501, 32106),
        (6141, 358, 5783),  # more than 5 % of a small card
        (4096, 328, 3768),
        (24564, None, 24081),  # memory version 1 tells no reserve
        (8192, None, 8438),  # Vulkan counts the window of 256 MiB beside
        (81559, 500, 85_000),  # 5 %
        (8192, 0, 8492),
    ],
)
def test_differences_with_a_known_reason_are_none(driver: int, reserved: int | None, told: int) -> None:
    view = replace(
        VIEW, total=driver * MIB, reserved=None if reserved is None else reserved * MIB, free=1 * MIB
    )
    row = only((view,), serving(device("CUDA0", CARD.name, told * MIB)))
    assert row.disagrees is None
    assert list(notes([row])) == []


@pytest.mark.parametrize("told", [20 * 1024, 32 * 1024, 1])
def test_totals_that_do_not_fit_are_shown_with_both_figures(told: int) -> None:
    row = only((VIEW,), serving(device("CUDA0", CARD.name, told * MIB)))
    assert row.view == VIEW
    assert row.disagrees == Disagreement(24564 * MIB, told * MIB, "llama-server b1")
    assert row.told() == {"driver": 24564 * MIB, "engine": told * MIB, "build": "llama-server b1"}
    (note,) = notes([row])
    assert note.code == "vram_disagrees"
    assert "the driver says 23.99 GiB" in note.detail
    assert note.todo is not None
    assert ("MIG" in note.todo) == (told < 24564)


def test_what_shares_the_ram_never_disagrees() -> None:
    apu = Gpu("amd-1", 0, "AMD Radeon 8060S", "rocm", total=61 * GIB, integrated=True, pci="0000:c5:00.0")
    view = replace(VIEW, id="amd-1", name=apu.name, backend="rocm", total=61 * GIB, reserved=None)
    for told in (GIB, 32 * GIB, 64 * GIB, 120 * GIB):
        assert only((view,), serving(device("ROCm0", apu.name, told), gpus=(apu,))).disagrees is None
    listed = device("Vulkan0", "AMD Radeon 8060S (RADV GFX1151)", 96 * GIB, integrated=True)
    assert only((view,), serving(listed, gpus=(replace(apu, integrated=None),))).disagrees is None
    spark = Gpu("GPU-2", 0, "NVIDIA GB10", "cuda")
    shared = replace(VIEW, id="GPU-2", name=spark.name, total=119 * GIB, reserved=None, memory_source="ram")
    assert only((shared,), serving(device("CUDA0", spark.name, 60 * GIB), gpus=(spark,))).disagrees is None


def test_where_no_driver_tells_the_engine_does() -> None:
    listed = device("Vulkan0", "Intel(R) Arc(tm) A770 Graphics (DG2)", 16 * GIB, 15 * GIB, pci=ARC.pci)
    row = only((BARE,), serving(listed, gpus=(ARC,), engine=engine(Vulkan0=1024.0)))
    assert row.view == replace(
        BARE, total=16 * GIB, free=14 * GIB, used_by_engine=GIB, memory_source="engine"
    )
    assert row.disagrees is None


def test_a_sleeping_card_has_a_size_and_no_free_memory() -> None:
    listed = device("Vulkan0", "Intel Arc", 16 * GIB, 15 * GIB, pci=ARC.pci)
    row = only((replace(BARE, asleep=True),), serving(listed, gpus=(ARC,)))
    assert (row.view.total, row.view.free) == (16 * GIB, None)


def test_an_engine_that_ended_holds_nothing() -> None:
    listed = device("Vulkan0", "Intel Arc", 16 * GIB, 15 * GIB, pci=ARC.pci)
    ended = serving(listed, gpus=(ARC,), state="failed", engine=engine("failed", Vulkan0=1024.0))
    row = only((BARE,), ended)
    assert (row.view.free, row.view.used_by_engine) == (15 * GIB, None)


def test_of_two_models_the_last_look_tells_and_both_are_counted() -> None:
    def one(free: int, since: float, held: float) -> ServingSnapshot:
        listed = device("Vulkan0", "Intel Arc", 16 * GIB, free, pci=ARC.pci)
        return serving(listed, gpus=(ARC,), loaded_since=since, engine=engine(Vulkan0=held))

    row = only((BARE,), one(15 * GIB, 1.0, 2048.0), one(13 * GIB, 2.0, 1024.0))
    assert (row.view.free, row.view.used_by_engine) == (12 * GIB, 3 * GIB)


def test_a_gpu_that_only_the_engine_knows_is_a_row_without_sensors() -> None:
    listed = device("Vulkan0", "Intel(R) Iris(R) Xe", 8 * GIB, 7 * GIB)
    row = only((), serving(listed, gpus=()))
    view = row.view
    assert (view.id, view.name, view.backend) == ("engine:Vulkan0", "Intel(R) Iris(R) Xe", "vulkan")
    assert (view.total, view.free, view.memory_source, view.state) == (8 * GIB, 7 * GIB, "engine", "unknown")
    assert (view.temperature, view.reasons, view.power, view.utilisation, view.age_s) == (None,) * 5


def test_apple_is_one_row_by_its_own_id() -> None:
    apple = Gpu("apple-0", 0, "Apple M3 Max", "metal", integrated=True)
    row = only(
        (), serving(device("MTL0", "Apple M3 Max", 48 * GIB, 40 * GIB, integrated=True), gpus=(apple,))
    )
    assert (row.view.id, row.view.total, row.disagrees) == ("apple-0", 48 * GIB, None)


@pytest.mark.parametrize(
    "listed",
    [
        device("Vulkan0", "llvmpipe (LLVM 19.1)", 32 * GIB, software=True),
        device("RPC0", "10.0.0.2:50052", 24 * GIB),
        device("Vulkan0", "Intel Arc", None),
        device("Vulkan9", CARD.name + " (again)", 24 * GIB),
    ],
)
def test_what_is_no_gpu_of_its_own_is_no_row(listed: DeviceMemory) -> None:
    both = serving(device("CUDA0", CARD.name, 24081 * MIB), listed)
    assert [row.view.id for row in gpu_rows((VIEW,), [both])] == ["GPU-1"]


def test_a_card_whose_driver_has_not_answered_yet_waits_for_it() -> None:
    assert gpu_rows((), [serving(device("CUDA0", CARD.name, 24081 * MIB))]) == ()


def test_an_unknown_card_listed_by_two_backends_is_one_row() -> None:
    listed = (device("CUDA0", "Some Card", 8 * GIB), device("Vulkan0", "Some Card", 8 * GIB))
    assert [row.view.id for row in gpu_rows((), [serving(*listed, gpus=())])] == ["engine:CUDA0"]


def test_two_equal_cards_of_one_backend_are_two_rows() -> None:
    listed = (device("Vulkan0", "Intel Arc", 8 * GIB), device("Vulkan1", "Intel Arc", 8 * GIB))
    found = gpu_rows((), [serving(*listed, gpus=())])
    assert [row.view.id for row in found] == ["engine:Vulkan0", "engine:Vulkan1"]


def test_among_cards_of_one_name_nothing_is_said_without_an_address() -> None:
    twin = replace(CARD, id="GPU-2", index=1, pci="0000:02:00.0")
    views = (VIEW, replace(VIEW, id="GPU-2"))
    listed = (device("CUDA0", CARD.name, 8 * GIB), device("CUDA1", CARD.name, 8 * GIB))
    rows = gpu_rows(views, [serving(*listed, gpus=(CARD, twin))])
    assert [row.disagrees for row in rows] == [None, None]
    sure = [replace(one, pci=gpu.pci) for one, gpu in zip(listed, (CARD, twin), strict=True)]
    rows = gpu_rows(views, [serving(*sure, gpus=(CARD, twin))])
    assert [row.disagrees is None for row in rows] == [False, False]


def test_the_status_document_shows_both_figures_and_the_note(tmp_path: Path) -> None:
    parts = Parts(
        record=Record(1, 1.0, "1", "http://127.0.0.1:1", "t"),
        serving=serving(device("CUDA0", CARD.name, GIB)),
        seats=(), monitor=MonitorSnapshot(gpus=(VIEW,)), awake=AwakeView(True, False), queue=None, remotes=(),
        downloads=(), today=Today(0, 0, 0), running=(), recent=(), halted=False,
        prompts=PromptCacheSnapshot(False), policy="local-first", paths=paths_in(tmp_path),
    )  # fmt: skip
    shown = document(parts)
    (row,) = shown["gpus"]
    assert (row["total"], row["memory_source"]) == (24564 * MIB, "driver")
    assert row["disagrees"] == {"driver": 24564 * MIB, "engine": GIB, "build": "llama-server b1"}
    assert [note["code"] for note in shown["notes"]].count("vram_disagrees") == 1
    agreed = document(replace(parts, serving=serving(device("CUDA0", CARD.name, 24081 * MIB))))
    assert agreed["gpus"][0]["disagrees"] is None
    assert set(row) >= {
        "id", "name", "backend", "total", "free", "used_by_engine", "temperature", "slowdown_at", "reasons",
        "power", "utilisation", "state",
    }  # fmt: skip


def test_without_a_look_the_views_stay() -> None:
    assert gpu_rows((VIEW,), [ServingSnapshot()]) == (GpuRow(VIEW),)
    assert gpu_rows((), []) == ()
