"""What the planner chooses, what it never changes, and what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from appliance.errors import GgufError, UsageError
from appliance.gguf import Header, read_header
from appliance.planning import HostMemory, Learned
from tests.planning.machines import BUILD, GIB, HOST, MIB, codes, flag, gpu, llama_like, plan

MODEL = llama_like()


def test_without_a_gpu_everything_runs_in_ram() -> None:
    found = plan(MODEL)

    assert found.fits
    assert (found.gpu_layers, found.devices) == (0, ())
    assert "no_gpu" in codes(found)
    assert flag(found, "-ngl") == "0"
    assert "-dev" not in found.flags


def test_a_large_gpu_takes_all_layers_with_the_output_head() -> None:
    found = plan(MODEL, gpu(24 * GIB))

    assert found.fits
    assert found.gpu_layers == found.n_layer + 1 == 33
    assert (found.ctx, found.parallel, found.kv_type) == (16_384, 4, "f16")
    assert found.host.kv == 0


def test_flags_name_layers_context_and_fit_together() -> None:
    found = plan(MODEL, gpu(24 * GIB), ctx=5_000, parallel=3)

    assert found.ctx == 5_120  # padded to 256, as the engine does
    assert flag(found, "-c") == str(5_120 * 3)
    assert flag(found, "-np") == "3"
    assert flag(found, "-fit") == "off"
    assert flag(found, "-ngl") == "33"
    assert flag(found, "-ctk") == flag(found, "-ctv") == "f16"
    assert flag(found, "-t") == "8"
    assert "padded" in codes(found)


def _needed(ctx: int, parallel: int, kv_type: str, n_ubatch: int = 512) -> int:
    """Free memory that is just enough for all layers."""
    roomy = plan(MODEL, gpu(99 * GIB), ctx=ctx, parallel=parallel, kv_type=kv_type, n_ubatch=n_ubatch)
    return roomy.devices[0].needed + 512 * MIB


@pytest.mark.parametrize(
    "step", [(16_384, 4, "f16", 2_048), (16_384, 4, "f16", 1_024), (16_384, 4, "f16", 512),
             (8_192, 4, "f16", 512), (8_192, 3, "f16", 512), (8_192, 2, "f16", 2_048), (8_192, 2, "f16", 512),
             (8_192, 2, "q8_0", 512), (7_168, 2, "q8_0", 512), (4_096, 2, "q8_0", 512)]
)  # fmt: skip
def test_chat_gives_up_micro_batch_slots_cache_precision_and_context(step: tuple[int, int, str, int]) -> None:
    just_enough = plan(MODEL, gpu(_needed(*step)))

    taken = just_enough.ctx, just_enough.parallel, just_enough.kv_type, just_enough.n_ubatch
    assert taken == step
    assert int(flag(just_enough, "-ub")) == step[3]
    assert flag(just_enough, "-b") == "2048"  # it stays large
    assert ("ubatch" in codes(just_enough)) == (step[3] < 2_048)
    assert just_enough.gpu_layers == 33
    assert ("kv_quantised" in codes(just_enough)) == (step[2] == "q8_0")
    assert ("context_cut" in codes(just_enough)) == (step[0] < 8_192)


def test_layers_go_last() -> None:
    found = plan(MODEL, gpu(_needed(4_096, 2, "q8_0") - MIB))

    assert found.fits
    assert found.gpu_layers < 33
    assert (found.ctx, found.parallel, found.kv_type) == (4_096, 2, "q8_0")


def test_a_small_gpu_takes_some_layers_and_says_why() -> None:
    found = plan(MODEL, gpu(4 * GIB))

    assert found.fits
    assert 0 < found.gpu_layers < 33
    assert found.ctx == 4_096
    assert {"tight", "fewer_layers", "kv_quantised", "context_cut"} <= set(codes(found))
    assert found.devices[0].spare is not None
    assert 0 <= found.devices[0].spare < 200 * MIB  # less than one more layer needs


def test_kv_floor_holds() -> None:
    tight = gpu(_needed(8_192, 2, "q4_0"))

    assert plan(MODEL, tight, kv_floor="f16").kv_type == "f16"
    assert plan(MODEL, tight, kv_floor="q8_0").kv_type == "q8_0"
    assert plan(MODEL, tight, kv_floor="q4_0").kv_type == "q4_0"


def test_trained_context_caps_what_is_chosen() -> None:
    found = plan(llama_like(context=2_048), gpu(24 * GIB))

    assert found.ctx == 2_048
    assert "context_cut" not in codes(found)


def test_docs_is_one_slot_with_as_much_context_as_fits() -> None:
    roomy = plan(MODEL, gpu(24 * GIB), profile="docs")
    tight = plan(MODEL, gpu(_needed(20_480, 1, "q8_0")), profile="docs")
    small = plan(MODEL, gpu(4 * GIB), profile="docs")

    assert (roomy.parallel, roomy.ctx) == (1, 40_960)
    assert tight.parallel == 1
    assert tight.gpu_layers == 33
    assert (tight.ctx, tight.kv_type) == (20_480, "q8_0")
    assert 0 < small.gpu_layers < 33
    assert small.ctx == 16_384  # a page of text is no document: layers go before that


def test_batch_takes_more_slots() -> None:
    assert plan(MODEL, gpu(24 * GIB), profile="batch").parallel == 16


def test_batch_stops_at_the_knee() -> None:
    """1,024 tokens of a request hold 128 MiB here, the weights 4.4 GiB: 4.4 GiB / (2 * 128 MiB) = 17 slots.

    With four times the heads in the cache, four of them pay.
    """
    wide = llama_like(n_head_kv=32)

    assert plan(wide, gpu(80 * GIB), profile="batch").parallel == 4
    assert plan(MODEL, profile="batch").parallel == 4  # a CPU ends it first


def test_explicit_values_are_never_changed() -> None:
    found = plan(MODEL, gpu(6 * GIB), ctx=32_768, parallel=8, gpu_layers=33, kv_type="f16")

    assert not found.fits
    assert (found.ctx, found.parallel, found.gpu_layers, found.kv_type) == (32_768, 8, 33, "f16")
    assert found.devices[0].spare is not None
    assert found.devices[0].spare < 0


def test_what_does_not_fit_names_need_have_and_the_smallest_change() -> None:
    found = plan(MODEL, gpu(8 * GIB), ctx=8_192, parallel=4, gpu_layers=33, kv_type="f16")

    texts = {r.code: r.text for r in found.reasons}
    assert not found.fits
    assert texts["does_not_fit"].startswith("does not fit: CUDA0 would need ")
    assert "of the 7680 MiB that may be used" in texts["does_not_fit"]
    assert texts["would_fit"] == "the smallest change that would fit: --kv q8_0"
    assert plan(MODEL, gpu(8 * GIB), ctx=8_192, parallel=4, gpu_layers=33, kv_type="q8_0").fits


@pytest.mark.parametrize("free", [2, 4, 5, 6])
def test_the_named_change_really_fits(free: int) -> None:
    asked: dict[str, Any] = {"ctx": 8_192, "parallel": 4, "gpu_layers": 33, "kv_type": "q8_0"}
    found = plan(MODEL, gpu(free * GIB), **asked)
    text = next(r.text for r in found.reasons if r.code == "would_fit")
    option, value = text.split(": ")[1].split()

    changed = {**asked, option.removeprefix("--").replace("-", "_"): int(value)}
    assert plan(MODEL, gpu(free * GIB), **changed).fits


def test_a_model_larger_than_the_machine() -> None:
    found = plan(MODEL, host=HostMemory(4 * GIB, 3 * GIB))

    assert not found.fits
    assert found.host.spare is not None
    assert found.host.spare < 0
    assert "no single option makes it fit: take a smaller model or quant" in [r.text for r in found.reasons]


def test_unknown_free_memory_means_no_layers_unless_asked() -> None:
    auto = plan(MODEL, gpu(None, total=8 * GIB))
    asked = plan(MODEL, gpu(None, total=8 * GIB), gpu_layers=10)

    assert auto.gpu_layers == 0
    assert any(r.code == "device_unused" and "unknown" in r.text for r in auto.reasons)
    assert flag(auto, "-dev") == "none"
    assert asked.gpu_layers == 10
    assert asked.devices[0].spare is None
    assert "free_unknown" in codes(asked)


def test_a_software_device_is_used_only_when_layers_are_asked_for() -> None:
    device = gpu(2 * GIB, name="Vulkan0", backend="vulkan", software=True)
    auto = plan(MODEL, device)
    asked = plan(MODEL, device, gpu_layers=8)

    assert auto.gpu_layers == 0
    assert flag(auto, "-dev") == "none"  # else long prompts would be worked on there
    assert asked.gpu_layers == 8
    assert asked.devices[0].needed > 0
    assert asked.host.overhead > asked.devices[0].needed  # its memory is RAM


def test_zero_layers_asked_leave_the_gpu_alone() -> None:
    found = plan(MODEL, gpu(24 * GIB), gpu_layers=0)

    assert (found.gpu_layers, found.devices) == (0, ())
    assert flag(found, "-dev") == "none"


def test_more_layers_than_there_are_mean_all() -> None:
    assert plan(MODEL, gpu(24 * GIB), gpu_layers=999).gpu_layers == 33
    assert plan(MODEL, gpu(24 * GIB), gpu_layers=-1).gpu_layers == 33


def test_layers_without_a_device_are_explained() -> None:
    found = plan(MODEL, gpu_layers=20)

    assert found.gpu_layers == 0
    assert "layers_ignored" in codes(found)


def test_a_discrete_card_goes_before_the_integrated_one() -> None:
    inside = gpu(8 * GIB, name="Vulkan0", backend="vulkan", integrated=True)
    card = gpu(24 * GIB, name="Vulkan1", backend="vulkan", integrated=False)
    found = plan(MODEL, inside, card)

    assert [d.name for d in found.devices] == ["Vulkan1"]
    assert flag(found, "-dev") == "Vulkan1"


def test_an_integrated_gpu_counts_against_ram() -> None:
    inside = gpu(20 * GIB, name="Vulkan0", backend="vulkan", integrated=True)
    found = plan(MODEL, inside)

    assert found.gpu_layers == 33
    assert found.host.overhead >= found.devices[0].needed
    assert not plan(MODEL, inside, host=HostMemory(8 * GIB, 4 * GIB), gpu_layers=33).fits


def test_two_cards_share_the_layers_by_free_memory() -> None:
    found = plan(
        llama_like(n_layer=32, n_ff=28_672),
        gpu(9 * GIB),
        gpu(4_864 * MIB, name="CUDA1"),
        ctx=8_192,
        parallel=1,
    )

    first, second = found.devices
    assert found.gpu_layers == 33
    assert first.kv == pytest.approx(2 * second.kv, rel=0.2)  # 22 blocks and 10, the output head on the last
    assert "-dev" not in found.flags
    assert sum(found.tensor_split) == 33
    assert flag(found, "-ts") == ",".join(map(str, found.tensor_split))


def test_tied_embeddings_have_a_second_copy_on_the_device() -> None:
    tied, untied = plan(llama_like(tied=True), gpu(24 * GIB)), plan(MODEL, gpu(24 * GIB))

    assert tied.devices[0].model == untied.devices[0].model
    assert tied.host.model == untied.host.model


def test_the_output_head_is_the_first_layer(smollm2_path: Path) -> None:
    found = plan(read_header(smollm2_path), gpu(4 * GIB), gpu_layers=1)

    assert found.devices[0].kv == 0
    assert found.devices[0].model / MIB == pytest.approx(28.69, abs=0.01)  # the tied matrix and its norm


def test_a_device_that_refuses_large_tensors_leaves_them_in_ram() -> None:
    found = plan(MODEL, gpu(24 * GIB, max_tensor=128 * MIB))
    output = next(t.n_bytes for t in MODEL.tensors if t.name == "output.weight")

    assert output > 128 * MIB
    assert found.host.model == plan(MODEL, gpu(24 * GIB)).host.model + output


@pytest.mark.parametrize(("rows", "refused"), [(65_536, False), (65_537, True)])
def test_a_matrix_whose_result_is_too_large_for_a_device_stays_in_ram(rows: int, refused: bool) -> None:
    """Seen with llama-server b10434: 65,536 rows go to a device of 128 MiB per tensor, one more does not.

    The loader asks with 512 tokens: 65,536 rows * 512 tokens * 4 bytes = 128 MiB.
    """
    header = llama_like(n_layer=4, n_embd=512, n_ff=1_024, n_head=8, n_vocab=rows)
    small = plan(header, gpu(4 * GIB, max_tensor=128 * MIB))
    output = next(t.n_bytes for t in header.tensors if t.name == "output.weight")

    assert output < 128 * MIB
    moved = small.host.model - plan(header, gpu(4 * GIB)).host.model
    assert moved == (output if refused else 0)


def test_embedding_models_keep_the_output_of_whole_batches(smollm2_path: Path) -> None:
    header = read_header(smollm2_path)
    served = plan(header, gpu(4 * GIB), ctx=4_096, parallel=2, n_ubatch=512)
    embedding = plan(header, gpu(4 * GIB), ctx=4_096, parallel=2, n_ubatch=512, embedding=True)

    assert served.devices[0].compute < 20 * MIB
    assert embedding.devices[0].compute / MIB == pytest.approx(97.1, abs=0.1)  # the engine says 97


def test_the_in_process_server_gets_one_slot(gemma3_path: Path) -> None:
    header = read_header(gemma3_path)
    found = plan(header, engine_build="llama-cpp-python 0.3.36", ctx=8_192)

    assert found.parallel == 1
    assert found.host.kv == 18 * 8_192 * 512 * 2  # full-size windows
    assert "single_request" in codes(found)


def test_what_earlier_loads_taught_counts() -> None:
    plain = plan(MODEL, gpu(24 * GIB))
    taught = {"CUDA0": Learned(full=1.5, partial=3.0, overhead=600 * MIB)}
    learned = plan(MODEL, gpu(24 * GIB), learned=taught)

    assert learned.devices[0].compute == round(plain.devices[0].compute * 1.5)
    assert learned.devices[0].overhead == 600 * MIB
    assert (learned.devices[0].overhead_how, plain.devices[0].overhead_how) == ("learned", "typical")
    assert any(r.code == "overhead" and r.text.endswith("600 MiB (seen here)") for r in learned.reasons)


def test_a_part_in_ram_has_a_lesson_of_its_own() -> None:
    plain = plan(MODEL, gpu(24 * GIB), gpu_layers=20)
    learned = plan(MODEL, gpu(24 * GIB), gpu_layers=20, learned={"CUDA0": Learned(full=9.0, partial=1.25)})

    assert learned.devices[0].compute == round(plain.devices[0].compute * 1.25)


def test_an_unknown_architecture_is_said() -> None:
    assert "unknown_arch" in codes(plan(llama_like(arch="brandnew")))


def test_recurrent_state_grows_with_slots_and_not_with_context() -> None:
    ssm = {"ssm.conv_kernel": 4, "ssm.inner_size": 4096, "ssm.state_size": 128, "ssm.group_count": 16}
    header = llama_like(arch="qwen35", further=ssm)
    one = plan(header, gpu(24 * GIB), ctx=4_096, parallel=1).devices[0].kv
    two = plan(header, gpu(24 * GIB), ctx=4_096, parallel=2).devices[0].kv
    longer = plan(header, gpu(24 * GIB), ctx=8_192, parallel=1).devices[0].kv
    attention = 8 * 4_096 * 2 * 1_024 * 2  # 8 of 32 blocks, 8 heads of 128

    assert one == attention + round(50.25 * MIB)
    assert two == 2 * one
    assert longer == 2 * attention + round(50.25 * MIB)


def test_json_has_the_documented_keys() -> None:
    document = plan(MODEL, gpu(24 * GIB)).to_json()

    assert {
        "model", "arch", "engine_build", "n_layer", "gpu_layers", "ctx", "parallel", "kv_type", "flash_attn",
        "devices", "host", "fits", "measured", "reasons", "flags",
    } <= set(document)  # fmt: skip
    account = {"name", "total", "free", "reserve", "model", "kv", "compute", "overhead", "spare"}
    assert account <= set(document["devices"][0])
    assert account <= set(document["host"])
    assert document["engine_build"] == BUILD
    assert document["measured"] is False


def test_reasons_read_like_sentences() -> None:
    texts = [r.text for r in plan(MODEL, gpu(11_870 * MIB)).reasons]

    assert "free on CUDA0 now 11870 MiB (driver)" in texts
    assert "kept free on CUDA0 512 MiB (reserve)" in texts
    assert "all 33 layers on CUDA0, output head included (chosen)" in texts


@pytest.mark.parametrize("wrong", [{"ctx": 0}, {"parallel": -1}, {"kv_type": "q3_x"}])
def test_requests_without_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        plan(MODEL, **wrong)


def test_a_projector_file_gives_no_plan() -> None:
    with pytest.raises(GgufError, match="no language model"):
        plan(Header(3, {"general.architecture": "clip"}, (), 32, 32), host=HOST)
