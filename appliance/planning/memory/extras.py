"""What stands beside the model: a projector for pictures and sound, and a draft model.

The forms for encoders follow the graphs of `tools/mtmd` in llama.cpp (October 2026), checked against what the
engine allocates for files of the shapes in use. A draft model is a second full model with its own context:
as many tokens and slots as the target's (`common_speculative_init_from_params`), an f16 cache of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from appliance.gguf import Encoder, Header, ModelShape, encoders_of, shape_of
from appliance.planning.memory.cache import Load, kv_bytes, state_bytes
from appliance.planning.memory.compute import ComputeModel, Era
from appliance.planning.memory.placement import place
from appliance.planning.memory.weights import Weights, weights_of
from appliance.planning.values import DeviceMemory, Projector
from appliance.units import MIB

DRAFT_TOKENS = 3
"""Tokens that a draft model runs ahead: llama.cpp's default (`--spec-draft-n-max`)."""
_UNKNOWN_ENCODER = 512 * MIB
"""For encoders that are no vision transformers: more than any of those that are known takes."""
_SPECTRUM = 4 * 3_000 * 128
"""Half a minute of sound as it enters an encoder: 100 frames per second of up to 128 values."""
_VOCAB_DIFFERENCE = 128
"""`SPEC_VOCAB_MAX_SIZE_DIFFERENCE` of common/speculative.cpp."""


def projector_of(header: Header, *, flash_attn: bool = True) -> Projector:
    """Bytes of a projector from its header. `flash_attn` False: the device can't use it for the encoder.

    Raises GgufError when the file is no projector.
    """
    encoders = encoders_of(header)
    largest = [_bytes(e, e.patches_max, flash_attn) for e in encoders]
    start = [_bytes(e, e.patches_start, flash_attn) for e in encoders]
    return Projector(
        weights=sum(tensor.n_bytes for tensor in header.tensors),
        compute=sum(device for device, _ in largest),
        host=sum(host for _, host in largest),
        at_start=sum(device for device, _ in start),
        n_ubatch=max((e.tokens_max for e in encoders if e.whole_picture), default=0),
    )


def _bytes(encoder: Encoder, patches: int, flash_attn: bool) -> tuple[int, int]:
    """(where the encoder runs, in RAM beside it) for one run over so many patches."""
    if not encoder.transformer or not encoder.n_embd:
        return _UNKNOWN_ENCODER, 0
    n = patches + encoder.class_token
    unit = 4 * n * encoder.n_embd
    pixels = 12 * patches * encoder.patch**2
    mask = 4 * n * n if encoder.windowed else 0
    width = 4 * n * encoder.n_ff
    attention = pixels + unit * ((6 if encoder.fused else 5) + encoder.class_token)
    attention += 2 * unit if encoder.kind == "mlp" else 0
    attention += mask // 2 if flash_attn else 4 * n * n * encoder.n_head
    feed = pixels + 3 * (unit + width) if encoder.gated else 2 * unit + width + encoder.class_token * unit
    kept = encoder.n_deep * unit  # outputs of blocks that are read once more when all others are done
    joined = pixels + 2 * unit + 8 * (patches // encoder.merge**2) * encoder.n_out
    heard = 0 if encoder.patch else 7 * unit  # two convolutions, the second over twice the positions
    peak = mask + max(kept + attention, kept + feed, joined, heard)
    return peak, pixels + mask + 16 * patches + (0 if encoder.patch else _SPECTRUM)


@dataclass(frozen=True, slots=True)
class DraftBytes:
    """What a draft model takes, in bytes."""

    model: int
    kv: int
    """Cache and recurrent state."""
    compute: int
    host_model: int
    """In RAM, beside the GPU: the input embedding."""
    host_compute: int
    """In RAM: inputs of the graph, and its logits."""


class DraftModel:
    """A separate draft model; it lies on one device as a whole, or in RAM."""

    def __init__(self, header: Header, era: Era = "new") -> None:
        """Raises GgufError when the header describes no language model."""
        self.shape: ModelShape = shape_of(header)
        self.weights: Weights = weights_of(header, self.shape)
        self._compute = ComputeModel(self.shape, self.weights, era)

    def load(self, target: Load) -> Load:
        """Its settings, which follow the target's: the same context, slots and batch, an f16 cache."""
        return replace(target, kv_k="f16", kv_v="f16", n_outputs=target.slots)

    def on_device(self, target: Load, device: DeviceMemory) -> DraftBytes:
        """With all its layers on one device."""
        load = self.load(target)
        layers = self.shape.n_layer + 1
        compute = self._compute.of(load, place(self.shape.n_layer, layers, (1,)), (device,))
        limit = device.max_tensor
        blocks = sum(self.weights.block_on(il, limit) for il in range(self.shape.n_layer))
        model = blocks + self.weights.output_on(limit) + self.weights.everywhere
        refused = sum(map(sum, self.weights.blocks)) - blocks + self.weights.output_off(limit)
        return DraftBytes(
            model=model,
            kv=kv_bytes(self.shape, load) + state_bytes(self.shape, load),
            compute=compute.devices[0],
            host_model=self.weights.input + refused,
            host_compute=compute.host + compute.output,
        )

    def in_ram(self, target: Load) -> DraftBytes:
        """Without a device: everything is in `host_model`, `kv` and `host_compute`."""
        load = self.load(target)
        compute = self._compute.of(load, place(self.shape.n_layer, 0, ()), ())
        kv = kv_bytes(self.shape, load) + state_bytes(self.shape, load)
        return DraftBytes(0, kv, 0, self.weights.total, compute.host + compute.output)


def with_draft(target: Load) -> Load:
    """The target's settings beside a draft model: it keeps the logits of what the draft proposed, too."""
    return replace(target, n_outputs=max(target.n_outputs, target.slots * (1 + DRAFT_TOKENS)))


def draft_mismatch(target: Header, draft: Header) -> str | None:
    """Why `draft` can't run ahead of `target`, as far as headers tell; None when nothing speaks against it.

    The engine compares the vocabularies, and serves without the draft when they differ.
    """
    for key, what in (
        ("tokenizer.ggml.model", "kind of vocabulary"),
        ("tokenizer.ggml.bos_token_id", "first token"),
        ("tokenizer.ggml.eos_token_id", "last token"),
    ):
        if target.metadata.get(key) != draft.metadata.get(key):
            return f"its {what} is another one than the model's"
    sizes = shape_of(target).n_vocab, shape_of(draft).n_vocab
    if abs(sizes[0] - sizes[1]) > _VOCAB_DIFFERENCE:
        return f"its vocabulary has {sizes[1]} tokens, the model's {sizes[0]}"
    return None
