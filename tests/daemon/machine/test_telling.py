"""What people are told of a GPU that can't be used, and what the journal gets."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from appliance.daemon.events import happenings
from appliance.daemon.served import ServingSnapshot
from appliance.engines import Build, Choice
from appliance.hardware import Gpu, Machine
from appliance.hardware.nvml import trouble
from appliance.operations.machine.survey import Note, Survey
from appliance.paths import Paths
from tests.daemon.machine.hall import ON_GPU, hall
from tests.engines.fake_engine import Script

CPU = Build("xllamacpp", None, "1", "xllamacpp 1")


def test_a_driver_that_was_updated_is_the_reason_and_no_engine_is_to_be_installed() -> None:
    gpus = (Gpu("GPU-1", 0, "Some GPU", "cuda"),)
    well = Survey(Machine(gpus=gpus), (CPU,), Choice(CPU, "the only one"), None)
    note = well.gpu_unused()
    assert note is not None
    assert "engines install cuda" in (note.todo or "")
    ill = replace(well, machine=Machine(gpus=gpus, trouble=trouble("version_mismatch")))
    note = ill.gpu_unused()
    assert note is not None
    assert (note.code, note.todo) == ("gpu_trouble", "Restart the machine.")
    assert "was updated" in note.detail


@pytest.mark.parametrize("code", ["replanned", "recycled", "resumed", "gpu_back"])
async def test_each_reason_to_load_again_is_an_event_of_its_own(
    paths: Paths, smollm2_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    async with hall(paths, smollm2_path, monkeypatch, Script(), load=False) as there:
        before = ServingSnapshot(ref=there.home.ref, state="ready")
        now = replace(before, state="starting", replanned=Note(code, "A reason."))
        assert [(one.kind, one.detail) for one in happenings(before, now)] == [(code, "A reason.")]
        assert happenings(now, replace(now, state="loading")) == ()


async def test_a_lost_gpu_is_one_event(
    paths: Paths, smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dies = Script(load_lines=ON_GPU, die_serving=-6)
    async with hall(paths, smollm2_path, monkeypatch, dies, Script()) as there:
        there.lose()
        there.home.told.clear()
        await there.crash()
        pairs = pairwise(there.home.told)
        kinds = [one.kind for before, now in pairs for one in happenings(before, now)]
        assert kinds.count("gpu_lost") == 1
        assert "failed" not in kinds
