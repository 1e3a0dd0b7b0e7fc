"""What `appliance plan` says for well-known models on usual machines, word for word, for a person to read.

`GOLDEN=write` writes the files anew; then read what changed: would you choose these settings?
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.indoors import Indoors
from tests.engines.clip_file import Vision, write_clip
from tests.planning.model_files import MODELS

WRITE = os.environ.get("GOLDEN") == "write"
FOLDER = Path(__file__).parent / "golden"
SIGLIP = Vision("gemma3", 896, 14, 1_152, 4_304, 16, 27, 3_840)
"""The encoder of Gemma 3."""


@dataclass(frozen=True)
class Case:
    """A model, a machine, and what is asked for beside."""

    model: str
    options: str
    code: int = 0


CASES: Mapping[str, Case] = {
    "laptop_8gb": Case("qwen3-8b", "--gpu '8GiB,RTX 4060 Laptop' --ram 16GiB"),
    "laptop_6gb_docs": Case("qwen3-4b", "--gpu '6GiB,RTX 3060 Laptop' --ram 16GiB --profile docs"),
    "browser_open_4gb": Case("qwen3-4b", "--gpu '4GiB,free=2900MiB,RTX 3050 Laptop' --ram 16GiB"),
    "experts_in_ram_8gb": Case("qwen3-30b-a3b", "--gpu '8GiB,RTX 4060' --ram 32GiB --what-if"),
    "windows_12gb": Case("gemma-3-12b", "--gpu '12GiB,RTX 3060' --ram 32GiB --what-if"),
    "pictures_12gb": Case("gemma-3-12b-vision", "--gpu '12GiB,RTX 3060' --ram 32GiB"),
    "unequal_12_8gb": Case("qwen3-14b", "--gpu '12GiB,RTX 3060' --gpu '8GiB,RTX 3070' --ram 32GiB"),
    "experts_16gb": Case("gpt-oss-20b", "--gpu '16GiB,RTX 4060 Ti' --ram 32GiB"),
    "desktop_24gb": Case("qwen3-32b", "--gpu '24GiB,RTX 4090' --ram 64GiB"),
    "two_24gb_70b": Case("llama-3.3-70b", "--gpu '24GiB,RTX 3090' --gpu '24GiB,RTX 3090' --ram 64GiB"),
    "two_16gb_batch": Case(
        "qwen3-8b", "--gpu '16GiB,RTX 4060 Ti' --gpu '16GiB,RTX 4060 Ti' --ram 64GiB --profile batch"
    ),
    "unified_16gb": Case("llama-3.1-8b", "--gpu 16GiB,M2"),
    "integrated_beside_8gb": Case(
        "qwen3.5-9b", "--gpu '8GiB,RX 7600S' --gpu '8GiB,integrated,780M' --ram 32GiB"
    ),
    "no_gpu_16gb": Case("qwen3-4b", "--ram 16GiB"),
    "draft_12gb": Case("qwen3-8b", "--draft ./qwen3-0.6b.gguf --gpu '12GiB,RTX 3060' --ram 16GiB"),
    "fits_nowhere": Case("qwen3-32b", "--gpu '4GiB,GTX 1650' --ram 8GiB", code=5),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All models, as files without tensor data."""
    folder = tmp_path_factory.mktemp("models")
    for name, shape in MODELS.items():
        shape.write(folder / f"{name}.gguf")
    write_clip(folder / "mmproj-gemma-3-12b.gguf", SIGLIP)
    return folder


@pytest.mark.parametrize("name", CASES)
def test_a_plan_reads_as_it_did(
    name: str, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, home = CASES[name], Indoors(tmp_path / "home")
    model = f"./{case.model}.gguf"
    if case.model.endswith("-vision"):
        model = case.model
        home.catalog(vision_entry(models))
    monkeypatch.chdir(models)
    done = home.run("plan", model, *shlex.split(case.options), env={"COLUMNS": "80"})
    assert (done.code, done.err) == (case.code, "")
    lines = [f"$ appliance plan {model} {case.options}", "", *done.out.splitlines()]
    found = "".join(f"{line.rstrip()}\n" for line in lines)
    file = FOLDER / f"{name}.txt"
    if WRITE:
        file.write_text(found, encoding="utf-8")
    assert found == file.read_text(encoding="utf-8")


def test_every_golden_file_belongs_to_a_case() -> None:
    assert {file.stem for file in FOLDER.glob("*.txt")} == set(CASES)


def test_a_line_for_people_fits_a_terminal_of_80_columns() -> None:
    for file in FOLDER.glob("*.txt"):
        lines = file.read_text(encoding="utf-8").splitlines()[1:]
        long = [
            line for line in lines if len(line) > 80 and not line.startswith("  -ngl ")
        ]  # to be pasted whole
        assert not long, file.name


def vision_entry(folder: Path) -> str:
    """A catalog's entry of Gemma 3 with its projector, as files of this computer."""

    def row(name: str, role: str, digit: str) -> str:
        size = (folder / name).stat().st_size
        return f'{{ name = "{name}", role = "{role}", size = {size}, sha256 = "{digit * 64}" }}'

    files = ", ".join((row("gemma-3-12b.gguf", "model", "1"), row("mmproj-gemma-3-12b.gguf", "mmproj", "2")))
    return f"""schema = 1

[models.gemma-3-12b-vision]
family = "gemma-3-vision"
name = "Gemma 3 12B with pictures"
params = 11.8e9
context = 131072
use = ["chat", "vision"]
[[models.gemma-3-12b-vision.variants]]
quant = "Q4_K_M"
source = {{ kind = "file", path = "{folder}" }}
files = [{files}]
"""
