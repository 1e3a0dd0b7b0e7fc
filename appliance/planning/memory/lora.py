"""What LoRA adapters take: each tensor lies beside the one that it changes.

Source: `llama_adapter_lora_init_impl` and `build_lora_mm` of llama.cpp (October 2026). Where the changed
tensor lies in one of the CPU's own formats, the adapter's lies in plain RAM, which is RAM all the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from appliance.errors import GgufError
from appliance.gguf import Header, ModelShape, TensorInfo, shape_of
from appliance.planning.memory.placement import Placement
from appliance.planning.values import Lora
from appliance.text import clean_line

_BLOCK = re.compile(r"blk\.(\d+)\.")
_EXPERTS = re.compile(r"\.ffn_(?:up|down|gate|gate_up)_(?:ch)?exps\.")
_SUFFIXES = (".lora_a", ".lora_b")
_HINT = "Take an adapter that was made for this very model, converted by llama.cpp's convert_lora_to_gguf.py."


def lora_of(
    header: Header, model: Header, name: str, *, scale: float = 1.0, sha256: str | None = None
) -> Lora:
    """The adapter of this header for `model`. `name` is for people.

    Raises GgufError for what is no LoRA adapter, and for one that can't belong to the model: of another
    architecture, or for tensors that the model has not, or has in another shape.
    """
    _require_adapter(header, model, name)
    shape, known = shape_of(model), {tensor.name: tensor for tensor in model.tensors}
    blocks, experts, ends = [0] * shape.n_layer, [0] * shape.n_layer, {"input": 0, "output": 0}
    width = 0
    for tensor in header.tensors:
        stem, suffix = tensor.name[:-7], tensor.name[-7:]
        if suffix not in _SUFFIXES:
            continue  # norms, which the engine leaves out; what else there is, it refuses by itself
        base = known.get(stem)
        if base is None or not _same_side(tensor, base, suffix):
            raise _foreign(name, f"the model has no {clean_line(stem, 80)} of its size")
        width = max(width, _width(tensor, suffix, shape))
        found = _BLOCK.match(stem)
        if found is None:
            ends["input" if stem.startswith("token_embd") else "output"] += tensor.n_bytes
        elif int(found[1]) < shape.n_layer:
            (experts if _EXPERTS.search(stem) else blocks)[int(found[1])] += tensor.n_bytes
    return Lora(name, scale, sha256, tuple(blocks), tuple(experts), ends["input"], ends["output"], width)


def _require_adapter(header: Header, model: Header, name: str) -> None:
    kind, how = header.metadata.get("general.type"), header.metadata.get("adapter.type")
    if (kind, how) != ("adapter", "lora"):
        said = kind if kind != "adapter" else how
        cause = (
            f"its header calls it {clean_line(said, 60)}" if isinstance(said, str) else "it is not called one"
        )
        raise GgufError(f"{name} is no LoRA adapter.", cause=cause, hint=_HINT)
    if header.arch != model.arch:
        raise _foreign(name, f"it was made for {header.arch}, and the model is {model.arch}")
    if not any(tensor.name.endswith(_SUFFIXES) for tensor in header.tensors):
        raise GgufError(
            f"{name} changes nothing.", cause="its header lists no tensor of an adapter", hint=_HINT
        )


def _foreign(name: str, why: str) -> GgufError:
    return GgufError(f"{name} is not for this model.", cause=why, hint=_HINT)


def _same_side(tensor: TensorInfo, base: TensorInfo, suffix: str) -> bool:
    """A has the row length of what it changes, B its rows; of the input embedding, they are turned around."""
    if base.name.startswith("token_embd"):
        # (A: rank x vocabulary, B: rank x width)
        return len(tensor.shape) > 1 and tensor.shape[1] == base.shape[1 if suffix == ".lora_a" else 0]
    if suffix == ".lora_a":
        return tensor.shape[0] == base.shape[0]
    return len(tensor.shape) > 1 and len(base.shape) > 1 and tensor.shape[1] == base.shape[1]


def _width(tensor: TensorInfo, suffix: str, shape: ModelShape) -> int:
    """Floats of one token in B's result, which is added to what the changed matrix gives."""
    if suffix != ".lora_b" or len(tensor.shape) < 2:
        return 0
    used = shape.n_expert_used if _EXPERTS.search(tensor.name) else 1
    return tensor.shape[1] * max(used, 1)


def adapter_bytes(adapters: Sequence[Lora], placement: Placement) -> tuple[tuple[int, ...], int]:
    """Bytes on each device that takes part, and in RAM."""
    devices, ram = [0] * placement.n_devices, 0
    for lora in adapters:
        ram += lora.input
        for il, place in enumerate(placement.blocks):
            far = place is None or il < placement.cpu_moe
            ram += (lora.experts[il] if far else 0) + (lora.blocks[il] if place is None else 0)
            if place is not None:
                devices[place] += lora.blocks[il] + (0 if far else lora.experts[il])
        if placement.output is None:
            ram += lora.output
        else:
            devices[placement.output] += lora.output
    return tuple(devices), ram


def scratch_bytes(adapters: Sequence[Lora], n_tokens: int) -> int:
    """B's result, beside the model's own, for so many tokens at once."""
    return 4 * n_tokens * max((lora.width for lora in adapters), default=0)
