"""The document of `plan`: one model, a family, this machine or a described one; and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from appliance.errors import UnknownModel, UsageError
from appliance.operations.lessons import speeds
from appliance.operations.plans.answer import answer
from appliance.operations.plans.headers import NoHeader
from appliance.operations.plans.question import question_of, wishes_of
from appliance.paths import Paths
from appliance.units import GIB, MIB
from tests.operations.families import KIN, LARGE, SMALL, library_of, unseen
from tests.operations.hubhouse import library
from tests.planning.model_files import MODELS

PLAN_KEYS = {
    "model", "arch", "engine_build", "n_layer", "gpu_layers", "ctx", "parallel", "kv_type", "flash_attn",
    "devices", "host", "fits", "reasons", "flags", "measured", "speed", "machine",
}  # fmt: skip
DEVICE_KEYS = {"name", "total", "free", "reserve", "model", "kv", "compute", "overhead", "spare"}


@pytest.fixture
def file(tmp_path: Path) -> str:
    return str(MODELS["qwen3-8b"].write(tmp_path / "qwen3-8b.gguf"))


async def test_a_described_machine_is_planned_without_any_engine(paths: Paths, file: str) -> None:
    found = await answer(library(paths), {"model": file, "gpu": ["12GiB,RTX 3060"], "ram": "32GiB"})
    assert found.keys() >= PLAN_KEYS
    assert found["devices"][0].keys() >= DEVICE_KEYS
    assert (found["model"], found["engine_build"], found["measured"]) == ("qwen3-8b.gguf", None, False)
    assert found["fits"]
    assert found["gpu_layers"] == found["n_layer"] + 1 == 37
    assert found["machine"]["gpus"][0]["description"] == "RTX 3060"
    assert found["machine"]["ram"]["total"] == 32 * GIB
    assert found["devices"][0]["name"] == "GPU0"
    assert found["speed"]["seen"] is None
    assert "what_if" not in found
    json.dumps(found, allow_nan=False)


async def test_every_wish_reaches_the_plan(paths: Paths, file: str, tmp_path: Path) -> None:
    draft = str(MODELS["qwen3-0.6b"].write(tmp_path / "small.gguf"))
    wishes = {
        "ctx": 4_096, "parallel": 3, "kv": "q4_0", "gpu_layers": 20, "ubatch": 256, "split": "row",
        "draft": draft,
    }  # fmt: skip
    machine = {"gpu": ["12GiB", "12GiB"], "ram": "32GiB"}
    found = await answer(library(paths), {"model": file, **wishes, **machine})
    asked = found["ctx"], found["parallel"], found["kv_type"], found["gpu_layers"], found["n_ubatch"]
    assert asked == (4_096, 3, "q4_0", 20, 256)
    assert found["split"] == "row"
    assert found["draft"] is not None


async def test_experts_and_profile_are_wishes_too(paths: Paths, tmp_path: Path) -> None:
    model = str(MODELS["qwen3-30b-a3b"].write(tmp_path / "moe.gguf"))
    body = {"model": model, "gpu": ["24GiB"], "ram": "32GiB", "cpu_moe": 40, "profile": "docs"}
    found = await answer(library(paths), body)
    assert (found["cpu_moe"], found["parallel"]) == (40, 1)
    assert found["ctx"] >= 16_384


async def test_a_draft_model_of_another_vocabulary_is_refused(
    paths: Paths, file: str, tmp_path: Path
) -> None:
    draft = str(MODELS["gemma-3-12b"].write(tmp_path / "other.gguf"))
    with pytest.raises(UsageError, match="can't run ahead"):
        await answer(library(paths), {"model": file, "draft": draft, "gpu": ["12GiB"]})


async def test_ram_that_was_not_described_is_unknown_and_said_to_be_taken_as_enough(
    paths: Paths, file: str
) -> None:
    found = await answer(library(paths), {"model": file, "gpu": ["4GiB"]})
    assert found["fits"]
    assert (found["host"]["free"], found["host"]["spare"]) == (None, None)
    assert "ram_unknown" in [reason["code"] for reason in found["reasons"]]


async def test_what_does_not_fit_is_a_plan_that_says_so(paths: Paths, file: str) -> None:
    found = await answer(library(paths), {"model": file, "ram": "4GiB"})
    assert not found["fits"]
    assert found["host"]["spare"] < 0


async def test_a_what_if_table_comes_with_the_plan_when_asked_for(paths: Paths, file: str) -> None:
    found = await answer(
        library(paths), {"model": file, "gpu": ["12GiB,RTX 3060"], "ram": "16GiB", "what_if": True}
    )
    rows = found["what_if"]
    assert {row["kv_type"] for row in rows} == {"f16", "q8_0", "q4_0"}
    assert {row["parallel"] for row in rows} == {found["parallel"]}
    same = next(row for row in rows if (row["ctx"], row["kv_type"]) == (found["ctx"], found["kv_type"]))
    assert same["gpu_layers"] == found["gpu_layers"]


async def test_on_this_machine_the_engine_names_the_plan_and_seen_speeds_are_told(
    paths: Paths, smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"model": str(smollm2_path), "ask": False}
    assert (await answer(library(paths), body))["speed"]["seen"] is None
    seen = {"cold": 31.0, "hot": None, "battery": 9.0}
    monkeypatch.setattr(speeds, "seen", lambda paths, ref, plan: seen)
    found = await answer(library(paths), body)
    assert found["machine"] == "here"
    assert found["engine_build"]
    assert not found["measured"]
    assert found["speed"]["seen"] == seen


async def test_a_family_is_ranked_and_planned_by_its_best_member(paths: Paths, tmp_path: Path) -> None:
    shelf = library_of(paths, tmp_path / "m", *KIN)
    found = await answer(shelf, {"model": "kin", "gpu": ["8GiB,RTX 4060"], "ram": "32GiB"})
    assert found["family"]["best"] == found["model"] == found["ranking"][0]["ref"] == "kin-8b:Q4_K_M"
    assert len(found["ranking"]) == len(KIN)
    assert found["fits"]
    assert found["gpu_layers"] == 37


async def test_a_family_without_any_header_has_a_ranking_and_no_plan(paths: Paths, tmp_path: Path) -> None:
    shelf = library_of(paths, tmp_path / "m", unseen(SMALL), unseen(LARGE))
    found = await answer(shelf, {"model": "kin", "gpu": ["8GiB,RTX 4060"], "ram": "32GiB"})
    assert found.keys() >= PLAN_KEYS
    assert (found["model"], found["gpu_layers"], found["flags"]) == ("kin-8b:Q4_K_M", None, [])
    assert found["fits"]


async def test_the_best_member_with_a_header_is_planned_where_the_best_one_has_none(
    paths: Paths, tmp_path: Path
) -> None:
    shelf = library_of(paths, tmp_path / "m", SMALL, unseen(LARGE))
    found = await answer(shelf, {"model": "kin", "gpu": ["8GiB,RTX 4060"], "ram": "32GiB"})
    assert found["family"]["best"] == "kin-8b:Q4_K_M"
    assert found["model"] == "kin-0.6b:Q4_K_M"


async def test_a_family_of_which_nothing_fits_does_not_fit(paths: Paths, tmp_path: Path) -> None:
    shelf = library_of(paths, tmp_path / "m", LARGE)
    found = await answer(shelf, {"model": "kin", "ram": "2GiB"})
    assert not found["fits"]
    assert found["family"]["best"] is None


async def test_a_family_takes_no_draft_model(paths: Paths, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        await answer(library_of(paths, tmp_path / "m", SMALL), {"model": "kin", "draft": "x", "ram": "8GiB"})


async def test_a_model_inside_a_package_has_no_header_and_its_size_is_told(paths: Paths) -> None:
    with pytest.raises(NoHeader) as caught:
        await answer(library(paths), {"model": "smollm2-135m-instruct", "gpu": ["8GiB"]})
    assert "it would fit on the GPU" in (caught.value.cause or "")


async def test_an_unknown_name_is_an_unknown_model(paths: Paths) -> None:
    with pytest.raises(UnknownModel):
        await answer(library(paths), {"model": "nonsuch", "ram": "8GiB"})


@pytest.mark.parametrize(
    "body",
    [
        {}, {"model": ""}, {"model": "  "}, {"model": 7}, {"model": None}, {"model": "x" * 5_000},
        {"model": "a\0b"},
        *({"model": "x", name: value} for name, value in [
            ("ctx", "4096"), ("ctx", 4096.0), ("ctx", True), ("ctx", 0), ("ctx", -1), ("ctx", 1 << 40),
            ("parallel", 0), ("parallel", 1_000), ("gpu_layers", -1), ("gpu_layers", "auto"), ("ubatch", 0),
            ("cpu_moe", -1), ("kv", "q3"), ("kv", 4), ("kv", ["f16"]), ("split", "rows"), ("profile", "fast"),
            ("engine", "vllm"), ("draft", 1), ("gpu", 8), ("gpu", [8]), ("gpu", {"0": "8GiB"}),
            ("gpu", ["8GiB", None]), ("gpu", "lots"), ("ram", 16), ("ram", "much"), ("what_if", 1),
            ("what_if", "yes"), ("ask", "no"), ("fetch_headers", 0), ("context", 4_096),
        ]),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        question_of(body)


def test_what_is_left_out_or_null_is_the_planner_s_choice() -> None:
    empty = question_of({"model": " qwen3-8b ", "ctx": None, "gpu": None, "ask": None, "what_if": None})
    assert empty.model == "qwen3-8b"
    assert empty.machine is None
    assert empty.ask
    assert not empty.what_if
    assert not empty.fetch_headers
    assert empty.wishes == wishes_of({})


def test_one_gpu_may_be_given_without_a_list() -> None:
    found = question_of({"model": "x", "gpu": "4GiB,free=2900MiB"}).machine
    assert found is not None
    assert found.devices[0].free == 2_900 * MIB


def test_the_wishes_of_a_load_are_checked_as_those_of_a_plan() -> None:
    assert wishes_of({"ctx": 4_096, "kv": "q8_0", "accept": True}).ctx == 4_096
    with pytest.raises(UsageError):
        wishes_of({"ctx": "4096"})
