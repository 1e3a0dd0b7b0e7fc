"""The order of sacrifice beyond context and layers: experts, projector, draft model, several cards."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.errors import UsageError
from appliance.gguf import read_header
from appliance.planning import Holder, HostMemory, Plan, Projector
from tests.planning.machines import GIB, MIB, codes, flag, gpu, llama_like, moe_like, plan

MODEL, MOE = llama_like(), moe_like()
EXPERTS = sum(t.n_bytes for t in MOE.tensors if "_exps" in t.name)
SEES = Projector(weights=900 * MIB, compute=250 * MIB)
DRAFT = llama_like(n_layer=28, n_embd=1_024, n_ff=3_072, n_head=16, tied=True)


def _text(found: Plan, code: str) -> str:
    return next(r.text for r in found.reasons if r.code == code)


def test_experts_go_to_ram_before_context_and_layers() -> None:
    found = plan(MOE, gpu(8 * GIB))

    assert found.fits
    assert (found.gpu_layers, found.ctx, found.kv_type) == (49, 8_192, "q8_0")
    assert 0 < found.cpu_moe < 48
    assert flag(found, "-ncmoe") == str(found.cpu_moe)
    assert found.host.model >= EXPERTS * found.cpu_moe // 48
    assert _text(found, "experts").startswith(f"experts of {found.cpu_moe} of 48 blocks in RAM")
    assert "fewer_layers" not in codes(found)


def test_as_few_experts_as_needed_go_to_ram() -> None:
    """One block's experts are 324 MiB; what is left on the card is less than that."""
    found = plan(MOE, gpu(8 * GIB))
    spare = found.devices[0].spare

    assert spare is not None
    assert spare < EXPERTS // 48
    fewer = plan(MOE, gpu(8 * GIB), cpu_moe=found.cpu_moe - 1, gpu_layers=49, ctx=8_192, parallel=2)
    assert not fewer.fits


def test_a_context_shrinks_only_when_all_experts_are_in_ram() -> None:
    plans = [plan(MOE, gpu(mib * MIB)) for mib in range(1_500, 4_000, 50)]
    shorter = [found for found in plans if found.gpu_layers == 49 and found.ctx < 8_192]

    assert shorter
    assert all(found.fits and found.cpu_moe == 48 and found.ctx >= 4_096 for found in shorter)
    assert all(found.ctx == 8_192 for found in plans if found.cpu_moe and found.cpu_moe < 48)


def test_asked_experts_stay_as_asked() -> None:
    assert plan(MOE, gpu(80 * GIB), cpu_moe=10).cpu_moe == 10
    assert plan(MOE, gpu(8 * GIB), cpu_moe=0).cpu_moe == 0


def test_experts_need_ram_too() -> None:
    found = plan(MOE, gpu(8 * GIB), host=HostMemory(8 * GIB, 6 * GIB))

    assert not found.fits
    assert "RAM would need" in _text(found, "does_not_fit")


def test_a_projector_lies_on_the_gpu_and_goes_to_ram_before_experts_and_context() -> None:
    roomy, tight = plan(MODEL, gpu(24 * GIB), mmproj=SEES), plan(MODEL, gpu(6 * GIB), mmproj=SEES)

    assert roomy.mmproj == "gpu"
    assert roomy.devices[0].beside.model == SEES.weights
    assert roomy.devices[0].model == plan(MODEL, gpu(24 * GIB)).devices[0].model + SEES.weights
    assert "--no-mmproj-offload" not in roomy.flags
    assert tight.mmproj == "cpu"
    assert tight.host.beside.model == SEES.weights
    assert "--no-mmproj-offload" in tight.flags
    assert (tight.ctx, tight.gpu_layers) == (8_192, 33)
    assert "pictures take longer" in _text(tight, "projector")


def test_a_draft_model_counts_and_is_the_first_thing_left_out() -> None:
    roomy, tight = plan(MODEL, gpu(24 * GIB), draft=DRAFT), plan(MODEL, gpu(7 * GIB), draft=DRAFT)

    assert roomy.draft == "gpu"
    assert flag(roomy, "-ngld") == "all"
    assert (
        roomy.devices[0].beside.kv == 28 * 16_384 * 4 * 2 * 8 * 64 * 2
    )  # its cache is as long as the target's
    assert tight.draft is None
    assert "-ngld" not in tight.flags
    assert (tight.gpu_layers, tight.kv_type) == (33, "f16")
    assert "left out" in _text(tight, "draft")


def test_one_card_that_holds_everything_leaves_the_other_free() -> None:
    found = plan(MODEL, gpu(24 * GIB), gpu(24 * GIB, name="CUDA1"))

    assert [d.name for d in found.devices] == ["CUDA0"]
    assert flag(found, "-dev") == "CUDA0"
    assert found.tensor_split == ()
    assert "fewer cards" in _text(found, "device_unused")


def test_the_larger_of_two_unequal_cards_is_taken_first() -> None:
    found = plan(MODEL, gpu(8 * GIB), gpu(16 * GIB, name="CUDA1"))

    assert [d.name for d in found.devices] == ["CUDA1"]


def test_unequal_cards_share_by_room() -> None:
    big = llama_like(n_layer=60, n_ff=20_480)  # about 14 GiB
    found = plan(big, gpu(12 * GIB), gpu(8 * GIB, name="CUDA1"))

    assert found.fits
    assert found.gpu_layers == 61
    first, second = found.tensor_split
    assert first + second == 61
    assert first > second
    assert all(device.spare is not None and device.spare >= 0 for device in found.devices)
    assert _text(found, "split") == f"shared as whole layers: {first} on CUDA0 and {second} on CUDA1"


def test_a_model_that_only_fits_when_each_card_is_filled() -> None:
    """By free memory the second card would get one layer more than it holds beside its own compute buffer."""
    big = llama_like(n_layer=60, n_ff=20_480)
    least = next(
        mib
        for mib in range(4_000, 8_000, 25)
        if plan(big, gpu(8 * GIB), gpu(mib * MIB, name="CUDA1")).gpu_layers == 61
    )
    found = plan(big, gpu(8 * GIB), gpu(least * MIB, name="CUDA1"))

    layer = found.devices[0].model // found.tensor_split[0]
    assert found.fits
    assert sum(device.spare or 0 for device in found.devices) < 3 * layer


def test_row_split_divides_every_matrix() -> None:
    found = plan(llama_like(n_ff=28_672), gpu(8 * GIB), gpu(8 * GIB, name="CUDA1"), split="row")

    assert found.split == "row"
    assert flag(found, "-sm") == "row"
    first, second = found.devices
    assert first.model == pytest.approx(second.model, rel=0.03)


def test_tensor_split_needs_flash_attention() -> None:
    found = plan(llama_like(n_ff=28_672), gpu(8 * GIB), gpu(8 * GIB, name="CUDA1"), split="tensor")

    assert flag(found, "-fa") == "on"
    assert found.devices[0].kv == pytest.approx(found.devices[1].kv, rel=0.1)


def test_limits_of_an_earlier_failure_make_the_plan_smaller() -> None:
    first = plan(MODEL, gpu(8 * GIB))
    again = plan(MODEL, gpu(8 * GIB), limits={"CUDA0": int(first.devices[0].needed * 0.9)})

    assert again.fits
    assert again.devices[0].needed <= first.devices[0].needed * 0.9
    assert again.gpu_layers == 33


def test_what_the_served_model_holds_counts_as_free() -> None:
    full = plan(MODEL, gpu(1 * GIB, ours=9 * GIB, total=12 * GIB))

    assert full.gpu_layers == 33
    assert (full.devices[0].free, full.devices[0].ours) == (10 * GIB, 9 * GIB)
    assert _text(full, "free") == "free on CUDA0 10240 MiB once the model served now has gone (now 1024 MiB)"


def test_other_programs_are_named() -> None:
    held = (Holder("firefox", 12, 1_200 * MIB), Holder("Xorg", 7, None))
    found = plan(MODEL, gpu(4 * GIB, held=held))

    assert (
        _text(found, "held") == "other programs hold memory on CUDA0: firefox 1200 MiB, Xorg (size unknown)"
    )


def test_docs_keeps_the_decode_goal_with_a_full_context() -> None:
    fast = plan(MODEL, gpu(48 * GIB, bandwidth=1_000e9), profile="docs")
    slow = plan(MODEL, gpu(48 * GIB, bandwidth=150e9), profile="docs", decode_goal=20)
    wish = plan(MODEL, gpu(48 * GIB, bandwidth=150e9), profile="docs", decode_goal=5)

    assert fast.ctx == wish.ctx == 40_960
    assert 16_384 <= slow.ctx < 40_960
    assert slow.speed is not None
    assert slow.speed.decode_full >= 20
    assert slow.kv_type == "q8_0"  # half the cache to read
    assert "less than 20 tokens/s when it is full" in _text(slow, "slow")


def test_speed_is_unknown_without_a_bandwidth() -> None:
    assert plan(MODEL, gpu(24 * GIB)).speed is None
    assert plan(MODEL, gpu(24 * GIB, bandwidth=900e9)).speed is not None


def test_a_described_machine_has_no_engine_build() -> None:
    assert plan(MODEL, gpu(24 * GIB), engine_build=None).to_json()["engine_build"] is None


def test_what_a_step_frees_beyond_need_is_given_back() -> None:
    """q8_0 halves the cache: there is room for a third slot again, or for a larger micro-batch."""
    found = plan(MODEL, gpu(6_600 * MIB))
    asked = plan(MODEL, gpu(6_600 * MIB), parallel=2)

    assert (found.ctx, found.kv_type, found.gpu_layers) == (8_192, "q8_0", 33)
    assert found.parallel > 2 or found.n_ubatch > 512
    assert asked.parallel == 2
    assert found.devices[0].spare is not None
    assert found.devices[0].spare < asked.devices[0].spare  # type: ignore[operator]


def test_a_slow_cpu_serves_two_at_once() -> None:
    slow = plan(MODEL, host=HostMemory(64 * GIB, 48 * GIB, 8, bandwidth=40e9))
    fast = plan(MODEL, host=HostMemory(64 * GIB, 48 * GIB, 8, bandwidth=400e9))

    assert (slow.parallel, slow.ctx) == (2, 8_192)
    assert (fast.parallel, fast.ctx) == (4, 8_192)


def test_experts_asked_of_a_dense_model_are_a_note() -> None:
    found = plan(MODEL, gpu(24 * GIB), cpu_moe=3)

    assert found.cpu_moe == 0
    assert "-ncmoe" not in found.flags
    assert "no_experts" in codes(found)


@pytest.mark.parametrize(("card", "ram"), [(8, 12), (16, 8), (8, 13)])
def test_card_and_ram_together_hold_a_mixture_that_neither_holds(card: int, ram: int) -> None:
    """About 17 GiB: the experts of all blocks are too much for RAM, those of some are not."""
    found = plan(MOE, gpu(card * GIB), host=HostMemory((ram + 4) * GIB, ram * GIB, 8))

    assert found.fits
    assert found.gpu_layers == 49
    assert 0 < found.cpu_moe < 48


def test_a_card_that_is_not_used_by_a_plan_that_does_not_fit_is_not_called_slower() -> None:
    found = plan(MOE, gpu(4 * GIB), gpu(4 * GIB, name="CUDA1"), host=HostMemory(8 * GIB, 4 * GIB))

    assert not found.fits
    assert all("fits there" not in reason.text for reason in found.reasons)


def test_the_change_that_would_fit_really_fits_also_below_what_the_planner_gives_up() -> None:
    named = set()
    for mib in range(2_800, 3_600, 50):
        host = HostMemory(8 * GIB, mib * MIB, 8)
        found = plan(MODEL, gpu(3 * GIB), host=host)
        text = "" if found.fits else _text(found, "would_fit")
        if ": --" not in text:
            continue
        option, value = text.split(": --")[1].split()
        key = {"kv": "kv_type"}.get(option, option)
        changed = {key: value if key == "kv_type" else int(value)}
        assert plan(MODEL, gpu(3 * GIB), host=host, **changed).fits, text
        named.add(option)

    assert "parallel" in named


def test_a_cache_larger_than_a_device_takes_in_one_piece_does_not_fit() -> None:
    """A block's keys are 1,024 elements of 2 bytes: 65,536 cells are 128 MiB, which the device just takes."""
    device = gpu(60 * GIB, max_tensor=128 * MIB)
    just = plan(MODEL, device, ctx=32_768, parallel=2, kv_type="f16", gpu_layers=33)
    more = plan(MODEL, device, ctx=32_768, parallel=3, kv_type="f16", gpu_layers=33)

    assert just.fits
    assert not more.fits
    assert "one piece of 192 MiB, and CUDA0 takes 128 MiB" in _text(more, "does_not_fit")
    assert plan(MODEL, device, ctx=32_768, kv_type="f16").parallel <= 2


def test_a_cache_type_that_the_heads_do_not_allow_is_refused() -> None:
    odd = llama_like(n_embd=2_560, n_head=32, n_head_kv=32)  # heads of 80

    with pytest.raises(UsageError, match="q8_0 cache is not possible"):
        plan(odd, gpu(24 * GIB), kv_type="q8_0")
    assert plan(odd, gpu(24 * GIB)).kv_type == "f16"


def test_a_micro_batch_is_never_larger_than_the_batch() -> None:
    """The engine cuts it to `-b`."""
    found = plan(MODEL, gpu(48 * GIB), n_ubatch=8_192)

    assert (found.n_ubatch, found.n_batch) == (8_192, 8_192)
    assert (flag(found, "-b"), flag(found, "-ub")) == ("8192", "8192")


def test_more_blocks_than_there_are_mean_all() -> None:
    assert plan(MOE, gpu(48 * GIB), cpu_moe=10_000).cpu_moe == 48


def test_logits_that_a_device_refuses_are_made_in_ram(gemma3_path: Path) -> None:
    """Logged with 19 layers and 256 slots: 257.9 MiB of compute in RAM, where the output matrix stays."""
    header = read_header(gemma3_path)
    device = gpu(20 * GIB, name="Vulkan0", backend="vulkan", software=True, max_tensor=128 * MIB)
    found = plan(header, device, gpu_layers=19, ctx=256, parallel=256, n_ubatch=512)

    logits = 256 * 262_144 * 4
    assert found.host.beside.compute == logits  # the buffer that they go to
    assert found.host.compute - logits == pytest.approx(257.9 * MIB, rel=0.05)
