"""Do an engine's last lines say that its GPU is gone or of no use? Words of CUDA, HIP and Vulkan.

An illegal memory access is not among them: that is a fault of a program, and the GPU is well after it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_WORDS = re.compile(
    r"ErrorDeviceLost|device lost on|GPU is lost|ErrorInitializationFailed"
    r"|no (?:CUDA|ROCm)-capable device is detected"
    r"|(?:CUDA|ROCm|HIP) error: (?:unknown error|unspecified launch failure|initialization error|"
    r"uncorrectable ECC error|hardware stack error|OS call failed|system not yet initialized|"
    r"system has unsupported display driver|CUDA driver version is insufficient|"
    r"CUDA-capable device\(s\) is/are busy or unavailable|all CUDA-capable devices are busy)"
    r"|invalid device: \w+",
    re.IGNORECASE,
)


def says_lost(lines: Iterable[str]) -> bool:
    """Whether one of these lines of its log says so."""
    return any(_WORDS.search(line) for line in lines)
