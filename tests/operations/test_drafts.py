"""A draft model that was asked for: anything with a header for a plan, only verified models for a load."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.errors import ModelMissing, UnknownModel, UsageError
from appliance.operations.plans.drafts import planned_with, served_with
from appliance.operations.plans.headers import subject_of
from appliance.paths import Paths
from tests.operations.families import SMALL, library_of
from tests.operations.hubhouse import library
from tests.planning.model_files import MODELS


async def test_without_a_wish_the_model_s_own_stays(paths: Paths, tmp_path: Path) -> None:
    shelf = library(paths)
    subject = await subject_of(shelf, str(MODELS["qwen3-8b"].write(tmp_path / "m.gguf")))
    assert await planned_with(shelf, subject, None) is subject


async def test_a_plan_takes_the_header_of_any_file(paths: Paths, tmp_path: Path) -> None:
    shelf = library(paths)
    subject = await subject_of(shelf, str(MODELS["qwen3-8b"].write(tmp_path / "m.gguf")))
    found = await planned_with(shelf, subject, str(MODELS["qwen3-0.6b"].write(tmp_path / "d.gguf")))
    assert found.draft is not None
    assert found.draft.metadata["qwen3.block_count"] == 28
    assert len(found.draft_parts) == 1


async def test_a_load_takes_no_file_that_nobody_verified(paths: Paths, tmp_path: Path) -> None:
    shelf = library_of(paths, tmp_path / "m", SMALL)
    subject = await subject_of(shelf, "kin-0.6b")
    file = str(MODELS["qwen3-0.6b"].write(tmp_path / "d.gguf"))
    for draft in (file, "hf:owner/repo/file.gguf", "https://host/file.gguf"):
        with pytest.raises(UsageError, match="served from the models that are here") as caught:
            await served_with(shelf, subject, draft)
        assert "models add" in (caught.value.hint or "")
    with pytest.raises(ModelMissing):
        await served_with(shelf, subject, "kin-0.6b")
    with pytest.raises(UnknownModel):
        await served_with(shelf, subject, "nonsuch")
