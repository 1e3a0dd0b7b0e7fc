"""No file costs more than a tenth of a second of CPU time and 50 MiB, whatever is in it.

The assertions leave half as much again for a computer that others use, too.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gguf.measured import measure
from tests.gguf.test_hostile import CASES
from tests.gguf.worst import WORST

_MOST = 50 << 20
_READ = {
    "a million empty strings", "strings of 128 bytes", "strings of 1000 bytes", "a long string in each chunk",
    "8192 numbers", "short arrays of flags", "short arrays of numbers", "keys of 65535 bytes",
    "text that is no UTF-8", "text that grows four times", "8192 tensors",
}  # fmt: skip
"""The others go beyond a limit."""


@pytest.mark.parametrize("name", WORST)
def test_the_worst_files_stay_within_the_limits(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    WORST[name](path)

    cost = measure(path)

    assert cost.cpu_s < 0.15
    assert cost.peak < _MOST
    assert (cost.refusal is None) == (name in _READ), cost.refusal


def test_a_quarter_of_a_million_tokens_cost_milliseconds(gemma3_path: Path) -> None:
    cost = measure(gemma3_path)

    assert cost.cpu_s < 0.045
    assert cost.peak < 4 << 20
    assert cost.refusal is None


def test_broken_files_cost_next_to_nothing(tmp_path: Path) -> None:
    paths = []
    for number, (raw, _) in enumerate(CASES.values()):
        paths.append(tmp_path / f"{number}.gguf")
        paths[-1].write_bytes(raw)

    cost = measure(*paths)

    assert cost.cpu_s < 0.03  # the dearest of them
    assert cost.peak < 20 << 20
    assert cost.refusal is not None
