"""The tensor types of ggml: how many elements one block holds and how many bytes it takes.

Source: `enum ggml_type` in ggml.h and `GGML_QUANT_SIZES` in gguf-py (llama.cpp, October 2026).
Numbers that are missing here were removed from the format; the engine refuses them, too.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TensorType:
    """One storage type. `block_bytes` bytes hold `block_size` elements of a row."""

    name: str
    block_size: int
    block_bytes: int


def _t(name: str, block_size: int, block_bytes: int) -> TensorType:
    return TensorType(name, block_size, block_bytes)


TENSOR_TYPES: dict[int, TensorType] = {
    0: _t("F32", 1, 4),
    1: _t("F16", 1, 2),
    2: _t("Q4_0", 32, 18),
    3: _t("Q4_1", 32, 20),
    6: _t("Q5_0", 32, 22),
    7: _t("Q5_1", 32, 24),
    8: _t("Q8_0", 32, 34),
    9: _t("Q8_1", 32, 36),
    10: _t("Q2_K", 256, 84),
    11: _t("Q3_K", 256, 110),
    12: _t("Q4_K", 256, 144),
    13: _t("Q5_K", 256, 176),
    14: _t("Q6_K", 256, 210),
    15: _t("Q8_K", 256, 292),
    16: _t("IQ2_XXS", 256, 66),
    17: _t("IQ2_XS", 256, 74),
    18: _t("IQ3_XXS", 256, 98),
    19: _t("IQ1_S", 256, 50),
    20: _t("IQ4_NL", 32, 18),
    21: _t("IQ3_S", 256, 110),
    22: _t("IQ2_S", 256, 82),
    23: _t("IQ4_XS", 256, 136),
    24: _t("I8", 1, 1),
    25: _t("I16", 1, 2),
    26: _t("I32", 1, 4),
    27: _t("I64", 1, 8),
    28: _t("F64", 1, 8),
    29: _t("IQ1_M", 256, 56),
    30: _t("BF16", 1, 2),
    34: _t("TQ1_0", 256, 54),
    35: _t("TQ2_0", 256, 66),
    39: _t("MXFP4", 32, 17),
    40: _t("NVFP4", 64, 36),
    41: _t("Q1_0", 128, 18),
    42: _t("Q2_0", 64, 18),
}
"""By the number in the file."""

REMOVED_TYPES = {
    4: "Q4_2",
    5: "Q4_3",
    31: "Q4_0_4_4",
    32: "Q4_0_4_8",
    33: "Q4_0_8_8",
    36: "IQ4_NL_4_4",
    37: "IQ4_NL_4_8",
    38: "IQ4_NL_8_8",
}
"""Types of old files; today's engines repack at load instead."""
