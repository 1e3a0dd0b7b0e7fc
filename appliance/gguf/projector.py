"""The encoders in a projector file (`mmproj`): what decides the memory of a model that sees or hears.

Key names, defaults and limits follow llama.cpp (`tools/mtmd/clip.cpp`, October 2026).
"""

from __future__ import annotations

from dataclasses import dataclass

from appliance.errors import GgufError
from appliance.gguf.fields import Fields
from appliance.gguf.header import Header
from appliance.text import clean_line

_MAX_TOKENS = {
    "gemma4uv": 1_120, "gemma4v": 1_120, "glm4v": 4_096, "kimik25": 4_096, "kimivl": 1_024, "lfm2": 256,
    "ling3vl": 4_096, "minimax_m3": 576, "muse-glimmer": 4_096, "pixtral": 1_024, "qwen2.5o": 4_096,
    "qwen2.5vl_merger": 4_096, "qwen2vl_merger": 4_096, "qwen3vl_merger": 4_096,
    # their own limits are 16,384 and 62,500 tokens, which no picture of daily use needs
    "hunyuanvl": 4_096, "youtuvl": 4_096,
}  # fmt: skip
"""Tokens of the largest picture, where the file does not say it in pixels (`set_limit_image_tokens`)."""
_START_TOKENS = {
    "deepseek4v": 256, "dots3note_v": 2_116, "dots_ocr": 2_116, "exaone4_5": 2_116, "gemma4uv": 256,
    "gemma4v": 256, "glm4v": 2_116, "glm5v": 2_116, "hunyuanvl": 1_024, "kimivl": 256, "lightonocr": 256,
    "ling3vl": 2_116, "mimovl": 2_116, "minimax_m3": 256, "muse-glimmer": 1_024, "paddleocr": 784,
    "phi4": 256, "pixtral": 256, "qwen2.5o": 2_116, "qwen2.5vl_merger": 2_116, "qwen2vl_merger": 2_116,
    "qwen3vl_merger": 2_116, "youtuvl": 256,
}  # fmt: skip
"""Tokens of the picture that the engine warms up with, where it has no fixed size (`set_warmup_n_tokens`)."""
_MERGE = {
    "exaone4_5": 2, "gemma3": 4, "gemma4v": 3, "glm4v": 2, "glm5v": 2, "hunyuanvl": 2, "ling3vl": 2,
    "mimovl": 2, "minimax_m3": 2, "minicpmv4_6": 4, "muse-glimmer": 2, "paddleocr": 2, "qwen2.5o": 2,
    "qwen2.5vl_merger": 2, "qwen2vl_merger": 2, "qwen3vl_merger": 2, "step3vl": 4, "youtuvl": 2,
}  # fmt: skip
"""Patches per side that become one token, where the file does not say it."""
_BATCHED = frozenset({"deepseekocr", "deepseekocr2", "gemma4v", "internvl"})
_BATCH_TOKENS = 1_024
"""Tokens of tiles that are encoded at once where the encoder can (`mtmd_batch_max_tokens`)."""
_WHOLE_PICTURE = frozenset({"deepseek4v", "gemma3", "gemma4uv", "gemma4v"})
"""The model looks at all tokens of a picture at once (`mtmd_decode_use_non_causal`)."""
_OTHER_GRAPHS = frozenset({"deepseekocr", "deepseekocr2", "gemma3nv", "yasa2"})
"""Not (only) a vision transformer."""
_WINDOWED = ("vision.n_wa_pattern", "vision.wa_layer_indexes", "vision.wa_pattern_mode")
_LONG_SIDE = 3_024
_AUDIO_FRAMES = 1_500  # positions of 30 s


@dataclass(frozen=True, slots=True)
class Encoder:
    """One encoder of a projector file. Counts of patches are those of one run of its graph."""

    kind: str
    """The projector type as llama.cpp names it."""
    transformer: bool
    """False: a graph of another kind, whose memory can only be bounded."""
    n_embd: int
    n_ff: int
    n_head: int
    patch: int
    """Pixels per side of a patch; 0 for sound."""
    merge: int
    """Patches per side that become one token."""
    patches_start: int
    """Of the picture that the engine warms up with."""
    patches_max: int
    """Of the largest picture, or of all tiles that are encoded at once."""
    n_out: int
    """Width of a token that goes to the language model, deepstack features included."""
    n_deep: int
    """Blocks whose features are kept for the language model (deepstack)."""
    class_token: bool
    fused: bool
    """One matrix makes queries, keys and values."""
    gated: bool
    """The feed-forward part has a gate."""
    windowed: bool
    """Some blocks see a window, by a mask over all patches."""
    whole_picture: bool
    """The language model takes all tokens of a picture in one batch, so `n_ubatch` has to hold them."""

    @property
    def tokens_max(self) -> int:
        """Tokens of the largest picture."""
        return -(-self.patches_max // self.merge**2)


def encoders_of(header: Header) -> tuple[Encoder, ...]:
    """The encoders of a projector file. Raises GgufError when it is none, or does not describe one."""
    if header.arch != "clip":
        raise GgufError(
            "The file is no projector.",
            cause=f"its architecture is {header.arch}, not clip",
            hint="Name the model's mmproj file.",
        )
    fields = Fields(header)
    found: list[Encoder] = []
    if header.metadata.get("clip.has_vision_encoder"):
        found.append(_vision(header, fields))
    if header.metadata.get("clip.has_audio_encoder"):
        found.append(_audio(header, fields))
    if not found:
        raise GgufError(
            "The projector has no encoder that the engine could use.",
            cause="its header names neither a vision nor an audio encoder",
            hint="The file may be damaged, or made for older engines: take it from another source.",
        )
    return tuple(found)


def _kind(header: Header, modality: str) -> str:
    for key in ("clip.projector_type", f"clip.{modality}.projector_type"):
        value = header.metadata.get(key)
        if isinstance(value, str) and value:
            return clean_line(value, 64)
    return "mlp" if modality == "vision" else "unknown"


def _vision(header: Header, fields: Fields) -> Encoder:
    kind = _kind(header, "vision")
    image, patch = fields.get("vision.image_size", 0), fields.get("vision.patch_size", 0)
    names = {tensor.name for tensor in header.tensors}
    merge = fields.optional("vision.spatial_merge_size") or fields.optional("vision.projector.scale_factor")
    merge = merge or _MERGE.get(kind, 1)
    if kind == "gemma4uv":
        patch, merge = patch * merge, 1
    start, largest = _patches(fields, kind, image, patch, merge)
    deep = sum(name.startswith("v.deepstack.") and name.endswith(".fc2.weight") for name in names)
    return Encoder(
        kind=kind,
        transformer=kind not in _OTHER_GRAPHS and patch > 0,
        n_embd=fields.get("vision.embedding_length", 0),
        n_ff=fields.get("vision.feed_forward_length", 0),
        n_head=fields.get("vision.attention.head_count", 0),
        patch=patch,
        merge=merge,
        patches_start=start,
        patches_max=largest,
        n_out=fields.get("vision.projection_dim", 0) * (1 + deep),
        n_deep=deep,
        class_token="v.class_embd" in names,
        fused="v.blk.0.attn_qkv.weight" in names,
        gated="v.blk.0.ffn_gate.weight" in names,
        windowed=any(fields.has(key) for key in _WINDOWED),
        whole_picture=kind in _WHOLE_PICTURE,
    )


def _patches(fields: Fields, kind: str, image: int, patch: int, merge: int) -> tuple[int, int]:
    """Patches of the first picture and of the largest."""
    if not patch:
        return 0, 0
    area = merge * merge
    fixed = (image // patch) ** 2
    start = _START_TOKENS[kind] * area if kind in _START_TOKENS else fixed
    pixels = fields.get("vision.image_max_pixels", 0)
    if kind in _MAX_TOKENS:
        largest = _MAX_TOKENS[kind] * area
    elif pixels:
        largest = pixels // (patch * patch)
    elif kind == "lightonocr":
        largest = ((fields.get("vision.preproc_image_size", 0) or image or _LONG_SIDE) // patch) ** 2
    else:
        largest = fixed
    if kind in _BATCHED and fixed:
        largest = max(largest, fixed * max(_BATCH_TOKENS * area // fixed, 1))
    return start, max(start, largest)


def _audio(header: Header, fields: Fields) -> Encoder:
    return Encoder(
        kind=_kind(header, "audio"),
        transformer=True,
        n_embd=fields.get("audio.embedding_length", 0),
        n_ff=fields.get("audio.feed_forward_length", 0),
        n_head=fields.get("audio.attention.head_count", 0),
        patch=0,
        merge=1,
        patches_start=_AUDIO_FRAMES,
        patches_max=_AUDIO_FRAMES,
        n_out=fields.get("audio.projection_dim", 0),
        n_deep=0,
        class_token=False,
        fused=False,
        gated=False,
        windowed=False,
        whole_picture=False,
    )
