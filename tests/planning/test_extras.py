"""What projectors and draft models take, against logs of others and the engine's own rules."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from appliance.errors import GgufError
from appliance.gguf import Header, MetaValue, encoders_of, read_header, read_header_bytes
from appliance.planning import DeviceMemory, Load
from appliance.planning.memory.extras import DraftModel, draft_mismatch, projector_of, with_draft
from appliance.units import MIB
from tests.engines.clip_file import Vision, write_clip
from tests.gguf.writer import BOOL, STRING, U32, entry, gguf

QWEN = Vision("qwen3vl_merger", 768, 16, 1_152, 4_304, 16, 27, 5_120, {"spatial_merge_size": 2})
"""The encoder of Qwen3.6-27B."""
GEMMA = Vision("gemma3", 896, 14, 1_152, 4_304, 16, 27, 2_560)
CARD = DeviceMemory("CUDA0", "RTX", "cuda", 24 << 30, 23 << 30)


@pytest.fixture
def header(tmp_path: Path) -> Header:
    return read_header(write_clip(tmp_path / "mmproj.gguf", QWEN))


def changed(header: Header, **values: int) -> Header:
    keys = {f"clip.vision.{key}": value for key, value in values.items()}
    return replace(header, metadata={**header.metadata, **keys})


def test_the_projector_of_qwen_3_6_27b_takes_what_its_log_says(header: Header) -> None:
    projector = projector_of(header)
    assert projector.at_start / MIB == pytest.approx(248.10, rel=0.005)
    assert projector.weights / MIB == pytest.approx(887.99, rel=0.01)  # its file has a few more in 32 bits
    (encoder,) = encoders_of(header)
    at_start = 12 * encoder.patches_start * encoder.patch**2 + 16 * encoder.patches_start
    assert at_start / MIB == pytest.approx(24.93, rel=0.001)  # the picture and its positions, in RAM
    assert (encoder.patches_start, encoder.patches_max) == (46 * 46 * 4, 4_096 * 4)
    assert projector.host == at_start * encoder.patches_max // encoder.patches_start


def test_the_worst_picture_counts_and_not_the_first(header: Header) -> None:
    projector = projector_of(header)
    assert projector.compute / projector.at_start == pytest.approx(4_096 / (46 * 46), rel=0.01)
    fixed = projector_of(replace(header, metadata={**header.metadata, "clip.projector_type": "janus_pro"}))
    assert fixed.compute == fixed.at_start


def test_without_flash_attention_all_scores_of_all_heads_are_there_at_once(header: Header) -> None:
    patches = 4_096 * 4
    more = projector_of(header, flash_attn=False).compute - projector_of(header).compute
    assert more == pytest.approx(4 * patches**2 * 16, rel=0.05)


def test_outputs_of_blocks_that_are_read_again_stay_until_the_end(header: Header) -> None:
    deep = tuple(
        replace(header.tensors[0], name=f"v.deepstack.{il}.fc2.weight", offset=0) for il in (8, 16, 24)
    )
    narrow = changed(header, projection_dim=1_024)  # so that joining the features is not what takes most
    more = projector_of(replace(narrow, tensors=(*narrow.tensors, *deep)))
    assert more.compute - projector_of(narrow).compute == 3 * 4 * (4 * 4_096) * 1_152


@pytest.mark.parametrize(
    ("kind", "tokens"),
    [("gemma3", 256), ("gemma4v", 1_120), ("qwen3vl_merger", 0), ("internvl", 0)],
)
def test_some_models_need_all_tokens_of_a_picture_in_one_batch(
    kind: str, tokens: int, tmp_path: Path
) -> None:
    header = read_header(write_clip(tmp_path / "mmproj.gguf", GEMMA))
    header = replace(header, metadata={**header.metadata, "clip.projector_type": kind})
    assert projector_of(header).n_ubatch == tokens


def test_limits_in_pixels_are_read_from_the_file(header: Header) -> None:
    dots = replace(header, metadata={**header.metadata, "clip.projector_type": "dots_ocr"})
    (encoder,) = encoders_of(changed(dots, image_max_pixels=16 * 16 * 40_000))
    assert encoder.patches_max == 40_000


def test_sound_and_pictures_add_up(header: Header) -> None:
    whisper: dict[str, MetaValue] = {
        "clip.has_audio_encoder": True, "clip.audio.projector_type": "qwen2a",
        "clip.audio.embedding_length": 1_280, "clip.audio.feed_forward_length": 5_120,
        "clip.audio.attention.head_count": 20,
    }  # fmt: skip
    both = projector_of(replace(header, metadata={**header.metadata, **whisper}))
    assert (both.compute - projector_of(header).compute) / MIB == pytest.approx(51.27, rel=0.005)
    assert (both.host - projector_of(header).host) / MIB == pytest.approx(1.46, rel=0.05)


def test_an_unknown_kind_of_encoder_is_bounded(header: Header) -> None:
    other = replace(header, metadata={**header.metadata, "clip.projector_type": "gemma3nv"})
    assert projector_of(other).compute >= 512 * MIB


def test_a_model_is_no_projector(smollm2_path: Path) -> None:
    with pytest.raises(GgufError, match="no projector"):
        projector_of(read_header(smollm2_path))
    blind = gguf([entry("general.architecture", STRING, "clip"), entry("clip.use_gelu", BOOL, True)])
    with pytest.raises(GgufError, match="no encoder"):
        projector_of(read_header_bytes(blind))
    broken = gguf([
        entry("general.architecture", STRING, "clip"), entry("clip.has_vision_encoder", BOOL, True),
        entry("clip.vision.image_size", STRING, "large"), entry("clip.vision.patch_size", U32, 16),
    ])  # fmt: skip
    with pytest.raises(GgufError, match="image_size"):
        projector_of(read_header_bytes(broken))


def test_a_draft_model_has_the_targets_context_and_slots_with_its_own_cache_type(smollm2_path: Path) -> None:
    draft = DraftModel(read_header(smollm2_path))
    target = Load(4_096, 2, 512, "q8_0", "q8_0", 2)
    there, here = draft.on_device(target, CARD), draft.in_ram(target)
    assert there.kv == here.kv == 2 * 4_096 * 30 * (192 + 192) * 2  # f16, whatever the target has
    assert there.model + there.host_model == here.host_model + draft.weights.output_copy
    assert here.model == here.compute == 0
    assert draft.on_device(replace(target, slots=4, n_outputs=4), CARD).kv == 2 * there.kv


def test_the_target_keeps_the_logits_of_proposed_tokens() -> None:
    assert with_draft(Load(4_096, 2, 512, "f16", "f16", 2)).n_outputs == 8
    assert with_draft(Load(4_096, 2, 512, "f16", "f16", 512)).n_outputs == 512


def test_a_draft_model_of_another_family_is_named_before_the_load(
    smollm2_path: Path, gemma3_path: Path
) -> None:
    smol, gemma = read_header(smollm2_path), read_header(gemma3_path)
    assert draft_mismatch(smol, smol) is None
    assert draft_mismatch(smol, gemma) == "its kind of vocabulary is another one than the model's"
    alike = replace(gemma, metadata={**gemma.metadata, **_tokens_of(smol)})
    assert draft_mismatch(smol, alike) == "its vocabulary has 262144 tokens, the model's 49152"


def _tokens_of(header: Header) -> dict[str, MetaValue]:
    names = (f"tokenizer.ggml.{name}" for name in ("model", "bos_token_id", "eos_token_id"))
    return {name: header.metadata[name] for name in names}
