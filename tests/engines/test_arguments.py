"""All that a plan says stands in what an engine is started with, or the engine is not started."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from appliance.engines import Build, EngineKind, Launch
from appliance.engines.adapters import Listen, command
from appliance.engines.children.xllamacpp_child import parameters, use_experts, use_split
from appliance.engines.features import can, needed
from appliance.errors import EngineFailed
from appliance.planning import MemoryPlan, Plan
from appliance.planning.flags import Flags
from tests.engines.fake_engine import Script, install
from tests.engines.launches import MODEL_ID, build, plan

LISTEN = Listen("/run/e.sock", 0)
EYES, HELPER = Path("/v/mmproj.gguf"), Path("/v/draft.gguf")
X = Build("xllamacpp", None, "2026.10", "xllamacpp 2026.10")
PYTHON = Build("llama-cpp-python", None, "0.3.36", "llama-cpp-python 0.3.36")


def full(**changes: Any) -> Launch:
    """A plan with everything in it, for two devices."""
    base = plan(gpu_layers=31)
    devices = tuple(MemoryPlan(name, None, None, 0, 0, 0, 0, 0, None) for name in ("CUDA0", "CUDA1"))
    wanted = replace(
        base, n_batch=1_024, n_ubatch=256, cpu_moe=3, split="row", tensor_split=(20, 11), mmproj="gpu",
        draft="gpu", devices=devices,
    )  # fmt: skip
    wanted = replace(wanted, **changes)
    return Launch(MODEL_ID, Path("/m.gguf"), replace(wanted, flags=flags_of(wanted)), False, EYES, HELPER)


def flags_of(wanted: Plan) -> tuple[str, ...]:
    return Flags(
        wanted.gpu_layers, wanted.ctx * wanted.parallel, wanted.parallel, wanted.kv_type, wanted.flash_attn,
        wanted.n_ubatch, wanted.n_batch, wanted.threads, split=wanted.split,
        tensor_split=wanted.tensor_split, cpu_moe=wanted.cpu_moe, mmproj=wanted.mmproj, draft=wanted.draft,
        devices=tuple(device.name for device in wanted.devices),
    ).render()  # fmt: skip


def with_help(build_: Build, text: str) -> Build:
    """The same with another `--help`."""
    Path(str(build_.path)).write_text(f"#!/bin/sh\necho '{text}'\n")
    return build_


async def argv(launch: Launch, build_: Build) -> list[str]:
    return list((await command(build_, launch, LISTEN, key="k", marker="m")).argv)


async def test_llama_server_is_told_everything() -> None:
    what = await command(build("llama-server"), full(), LISTEN, key="k", marker="m")
    flags = list(what.argv)
    expected = {
        "-b": "1024", "-ub": "256", "-sm": "row", "-ts": "20,11", "-ncmoe": "3", "-ngld": "all",
        "--mmproj": str(EYES), "-md": str(HELPER), "-devd": "CUDA0", "--spec-type": "draft-simple",
        "-dev": "CUDA0,CUDA1",
    }  # fmt: skip
    assert {name: flags[flags.index(name) + 1] for name in expected} == expected
    assert "--no-mmproj-offload" not in flags
    assert what.env["MTMD_BACKEND_DEVICE"] == "CUDA0"  # beside the model's first layers, where it is counted


async def test_llama_server_keeps_projector_and_draft_model_off_every_device() -> None:
    what = await command(build("llama-server"), full(mmproj="cpu", draft="cpu"), LISTEN, key="k", marker="m")
    flags = list(what.argv)
    assert flags.count("--no-mmproj-offload") == 1
    assert flags[flags.index("-ngld") + 1] == "0"
    assert flags[flags.index("-devd") + 1] == "none"
    assert "MTMD_BACKEND_DEVICE" not in what.env


async def test_files_without_a_place_in_the_plan_are_not_named() -> None:
    for launch in (full(mmproj=None, draft=None), replace(full(), mmproj=None, draft=None)):
        flags = await argv(launch, build("llama-server"))
        assert {"--mmproj", "-md", "--spec-type", "-devd"}.isdisjoint(flags)


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({"mmproj": None, "draft": None, "split": "layer", "tensor_split": ()}, "-ncmoe"),
        ({"mmproj": None, "draft": None, "cpu_moe": 0}, "-sm"),
        ({"draft": None, "cpu_moe": 0, "split": "layer", "tensor_split": ()}, "--mmproj"),
        ({"mmproj": None, "cpu_moe": 0, "split": "layer", "tensor_split": ()}, "-ngld"),
    ],
)
async def test_a_build_that_lacks_what_the_plan_needs_is_not_started(
    changes: dict[str, Any], missing: str, tmp_path: Path
) -> None:
    with pytest.raises(EngineFailed, match=f"does not know {missing},") as caught:
        await argv(full(**changes), install(tmp_path, Script()))
    assert caught.value.hint


async def test_a_draft_model_needs_no_word_where_there_is_one_way_of_drafting(tmp_path: Path) -> None:
    older = with_help(install(tmp_path, Script()), "-md, --model-draft FNAME  -ngld N  -devd DEVICES")
    launch = full(mmproj=None, cpu_moe=0, split="layer", tensor_split=())
    flags = await argv(launch, older)
    assert flags[flags.index("-md") + 1] == str(HELPER)
    assert "--spec-type" not in flags


async def test_the_spec_of_xllamacpp_has_all_of_it() -> None:
    for place, device in (("gpu", "CUDA0"), ("cpu", None)):
        what = await command(X, full(mmproj=place, draft=place), LISTEN, key="k", marker="m")
        spec = json.loads(what.stdin or b"")
        assert (spec["n_batch"], spec["n_ubatch"], spec["cpu_moe"]) == (1_024, 256, 3)
        assert (spec["split"], spec["tensor_split"]) == ("row", [20, 11])
        assert spec["mmproj"] == {"path": str(EYES), "device": device}
        assert spec["draft"] == {"path": str(HELPER), "device": device}


async def test_xllamacpp_takes_what_the_spec_says() -> None:
    launch = full(mmproj="cpu", draft="cpu", devices=())
    what = await command(X, launch, LISTEN, key="k", marker="m")
    params = parameters(json.loads(what.stdin or b""), "secret")
    assert (params.n_batch, params.n_ubatch) == (1_024, 256)
    assert list(params.tensor_split)[:3] == [20.0, 11.0, 0.0]
    assert params.split_mode.name == "LLAMA_SPLIT_MODE_ROW"
    patterns = params.tensor_buft_overrides.split(",")
    assert patterns == [rf"blk\.{il}\.ffn_(up|down|gate|gate_up)_(ch|)exps=CPU" for il in range(3)]
    assert (params.mmproj.path, params.mmproj_use_gpu) == (str(EYES), False)
    draft = params.speculative.draft
    assert (draft.mparams.path, draft.n_gpu_layers) == (str(HELPER), 0)
    assert [kind.name for kind in params.speculative.types] == ["COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE"]


def test_a_version_of_xllamacpp_without_a_setting_is_no_silent_success() -> None:
    older = SimpleNamespace()
    modes = SimpleNamespace(llama_split_mode=SimpleNamespace(LLAMA_SPLIT_MODE_LAYER=1))
    with pytest.raises(AttributeError, match="tensor_split"):
        use_split(older, "layer", [1, 1], modes)
    use_split(older, "layer", [], modes)
    use_experts(older, 0)
    assert vars(older) == {"split_mode": 1}  # what is not needed is not asked for


async def test_llama_cpp_python_gets_split_and_batches_and_refuses_the_rest() -> None:
    plain = full(mmproj=None, draft=None, cpu_moe=0)
    spec = json.loads((await command(PYTHON, plain, LISTEN, key="k", marker="m")).stdin or b"")
    assert (spec["n_batch"], spec["split"], spec["tensor_split"]) == (1_024, "row", [20, 11])
    for changes in (
        {"mmproj": None, "draft": None},
        {"cpu_moe": 0, "draft": None},
        {"cpu_moe": 0, "mmproj": None},
    ):
        with pytest.raises(
            EngineFailed, match=r"can't (keep experts in RAM|use a projector|use a draft model)"
        ):
            await command(PYTHON, full(**changes), LISTEN, key="k", marker="m")


@pytest.mark.parametrize("kind", ["llama-server", "xllamacpp", "llama-cpp-python"])
def test_what_each_kind_can(kind: EngineKind) -> None:
    assert needed(full()) == ("cpu_moe", "draft", "mmproj", "split", "tensor_split")
    assert needed(Launch(MODEL_ID, Path("/m.gguf"), plan(), mmproj=EYES, draft=HELPER)) == ()
    assert can(kind, "tensor_split")
    assert can(kind, "mmproj") is (kind != "llama-cpp-python")
