"""No file costs more than a tenth of a second of CPU time and 50 MiB, whatever is in it.

The assertions leave half as much again for a computer that others use, too.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gguf.measured import Cost, measure
from tests.gguf.test_hostile import CASES
from tests.gguf.worst import WORST

_MOST = 50 << 20
_REFUSED = {
    "more empty strings than may be", "too many strings of 128 bytes", "too long a string in each chunk",
    "many string arrays", "8192 short arrays", "a key far behind the other", "some of everything",
}  # fmt: skip
"""These go beyond a limit, the others stay within."""


@pytest.fixture(scope="module")
def costs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Cost]:
    folder = tmp_path_factory.mktemp("worst")
    paths = [folder / f"{number}.gguf" for number in range(len(WORST))]
    for make, path in zip(WORST.values(), paths, strict=True):
        make(path)
    found = dict(zip(WORST, measure(paths), strict=True))
    for path in paths:
        path.unlink()
    return found


@pytest.mark.parametrize("name", WORST)
def test_the_worst_files_stay_within_the_limits(name: str, costs: dict[str, Cost]) -> None:
    cost = costs[name]

    assert cost.cpu_s < 0.15
    assert cost.peak < _MOST
    assert (cost.refusal is not None) == (name in _REFUSED), cost.refusal


def test_a_quarter_of_a_million_tokens_cost_milliseconds(gemma3_path: Path) -> None:
    (cost,) = measure([gemma3_path])

    assert cost.cpu_s < 0.045
    assert cost.peak < 4 << 20
    assert cost.refusal is None


def test_broken_files_cost_next_to_nothing(tmp_path: Path) -> None:
    files = []
    for number, name in enumerate(("unknown type", "huge array of texts", "much text", "overlap")):
        files.append(tmp_path / f"{number}.gguf")
        files[-1].write_bytes(CASES[name][0])

    for cost in measure(files):
        assert cost.cpu_s < 0.03
        assert cost.peak < 20 << 20
        assert cost.refusal is not None
