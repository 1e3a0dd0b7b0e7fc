"""What an engine can't do is not planned for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from appliance.engines import Build
from appliance.errors import UsageError
from appliance.operations.plans.engine_limits import within
from appliance.operations.plans.headers import Subject, of_file
from appliance.operations.use import Mode
from appliance.planning import DeviceMemory, Lora, PlanRequest, Projector

SERVER = Build("llama-server", "/bin/llama-server", "10434", "llama-server 10434")
PYTHON = Build("llama-cpp-python", None, "0.3.36", "llama-cpp-python 0.3.36")
CARD = DeviceMemory("CUDA0", "NVIDIA GeForce RTX 3060", "cuda", 12 << 30, 11 << 30)
OTHER = DeviceMemory("Vulkan0", "AMD Radeon RX 7600", "vulkan", 8 << 30, 7 << 30)


@pytest.fixture
def subject(smollm2_path: Path) -> Subject:
    plain = of_file(smollm2_path)
    return replace(plain, mmproj=Projector(1, 1), draft=plain.header, draft_parts=plain.parts)


def test_llama_server_gets_everything(subject: Subject) -> None:
    request = PlanRequest(cpu_moe=2, split="row", parallel=4)
    assert within(SERVER, (CARD,), subject, request) == (subject, request, ())


def test_llama_cpp_python_gets_one_slot_and_neither_projector_nor_draft(subject: Subject) -> None:
    left, request, notes = within(PYTHON, (CARD,), subject, PlanRequest())
    assert (left.mmproj, left.draft, left.draft_parts) == (None, None, ())
    assert (request.parallel, request.cpu_moe) == (1, 0)
    assert [note.code for note in notes] == ["slots_engine", "mmproj_engine", "draft_engine"]


def test_what_makes_a_model_what_it_is_is_never_left_out(subject: Subject) -> None:
    scores = replace(subject, mode=Mode(reranking=True, alone=True))
    with pytest.raises(UsageError, match="can't serve a model for reranking") as caught:
        within(PYTHON, (CARD,), scores, PlanRequest())
    assert "--engine" in (caught.value.hint or "")
    adapter = Lora("a", 1.0, None, (1,) * 30, (0,) * 30)
    within(PYTHON, (CARD,), replace(subject, adapters=(adapter,)), PlanRequest())
    with pytest.raises(UsageError, match="can't apply several adapters"):
        within(PYTHON, (CARD,), replace(subject, adapters=(adapter, adapter)), PlanRequest())
    within(SERVER, (CARD,), replace(scores, adapters=(adapter, adapter)), PlanRequest())


def test_experts_in_ram_are_refused_where_the_engine_has_no_place_for_it(subject: Subject) -> None:
    with pytest.raises(UsageError, match="experts in RAM"):
        within(PYTHON, (CARD,), subject, PlanRequest(cpu_moe=2))


def test_rows_are_split_only_where_every_device_can(subject: Subject) -> None:
    with pytest.raises(UsageError, match="Vulkan0 can't share the rows"):
        within(SERVER, (CARD, OTHER), subject, PlanRequest(split="row"))
    within(SERVER, (CARD, OTHER), subject, PlanRequest(split="tensor"))
    within(SERVER, (CARD, replace(OTHER, integrated=True)), subject, PlanRequest(split="row"))
