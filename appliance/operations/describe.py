"""A GGUF header and a file name -> the words of a catalog entry. Pure."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from appliance import hub
from appliance.catalog import Use
from appliance.gguf import Header
from appliance.operations.use import use_of
from appliance.text import clean_line

_FILE_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S",
    12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K",
    19: "IQ2_XXS", 20: "IQ2_XS", 21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL",
    26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S", 29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0",
    37: "TQ2_0", 38: "MXFP4_MOE",
}  # fmt: skip
"""`general.file_type`. Source: `enum llama_ftype` in include/llama.h."""
_NO_NAMES = ("", "model", "ggml-model", "gguf", "unsloth")


@dataclass(frozen=True, slots=True)
class Description:
    """What a file says of itself; None = it does not."""

    model_id: str
    name: str
    quant: str | None
    arch: str
    params: float | None
    context: int | None
    license: str | None
    use: tuple[Use, ...]


def describe(header: Header, file_name: str) -> Description:
    """The entry's words for the model in `file_name` (its first part, when it is split)."""
    stem = hub.stem_of(file_name)
    name = stem if stem.lower() not in _NO_NAMES else header.name or stem or "model"
    return Description(
        model_id=id_of(name),
        name=clean_line(name, 200),
        quant=hub.label_of(file_name) or _FILE_TYPES.get(_int(header, "general.file_type") or -1),
        arch=header.arch,
        params=_params(header, file_name),
        context=_int(header, f"{header.arch}.context_length") or None,
        license=_text(header, "general.license"),
        use=use_of(header),
    )


def id_of(name: str) -> str:
    """A name as an id of the catalog: lower case, dashes, at most 96 characters."""
    words = re.sub(r"[^a-z0-9._]+", "-", name.lower()).strip("-._")
    return re.sub(r"-{2,}", "-", words)[:96].rstrip("-._") or "model"


def _params(header: Header, file_name: str) -> float | None:
    """The sum over all tensors; a part of a split set does not know the others."""
    if hub.part_of(file_name) is not None or not header.tensors:
        return None
    return float(sum(math.prod(tensor.shape) for tensor in header.tensors)) or None


def _int(header: Header, key: str) -> int | None:
    value = header.metadata.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _text(header: Header, key: str) -> str | None:
    value = header.metadata.get(key)
    return (clean_line(value, 80) or None) if isinstance(value, str) else None
