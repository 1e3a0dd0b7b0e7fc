"""A family in a user's models.toml, whose files are headers only."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from appliance.operations.models import Library
from appliance.paths import Paths
from tests.operations.hubhouse import library
from tests.planning.model_files import MODELS, Shape


@dataclass(frozen=True)
class Entry:
    """One model of the family; `shape` names one of MODELS, or is one."""

    id: str
    shape: str | Shape
    params: float
    use: str = "chat"
    licence_note: str = ""
    family: str = "kin"
    url: str = ""
    """Where it comes from, in place of the folder: not here, and without a header at hand."""

    def write(self, folder: Path) -> str:
        """The header in the folder, and the text of the entry."""
        shape = MODELS[self.shape] if isinstance(self.shape, str) else self.shape
        file = shape.write(folder / f"{self.id}.gguf")
        digest = self.id.encode().hex().ljust(64, "0")[:64]
        source = f'kind = "url", url = "{self.url}"' if self.url else f'kind = "file", path = "{file}"'
        note = f'license_note = "{self.licence_note}"\n' if self.licence_note else ""
        return f"""
[models."{self.id}"]
family = "{self.family}"
name = "{self.id}"
params = {self.params}
context = {shape.context}
{note}use = ["{self.use}"]
[[models."{self.id}".variants]]
quant = "Q4_K_M"
source = {{ {source} }}
files = [{{ name = "{file.name}", size = {file.stat().st_size}, sha256 = "{digest}" }}]
"""


SMALL = Entry("kin-0.6b", "qwen3-0.6b", 0.6e9)
MIDDLE = Entry("kin-4b", "qwen3-4b", 4e9)
LARGE = Entry("kin-8b", "qwen3-8b", 8.2e9)
HUGE = Entry("kin-32b", "qwen3-32b", 32.8e9)
MIXTURE = Entry("kin-30b-a3b", "qwen3-30b-a3b", 30.5e9)
KIN = (SMALL, MIDDLE, LARGE, HUGE, MIXTURE)


def library_of(paths: Paths, folder: Path, *entries: Entry) -> Library:
    """A user whose catalog has these, too."""
    folder.mkdir(exist_ok=True)
    text = "schema = 1\n" + "".join(entry.write(folder) for entry in entries)
    paths.user_catalog.parent.mkdir(parents=True, exist_ok=True)
    paths.user_catalog.write_text(text, encoding="utf-8")
    return library(paths)


def unseen(entry: Entry) -> Entry:
    """The same from a server that does not answer: only its size is known."""
    return replace(entry, url=f"http://127.0.0.1:9/{entry.id}.gguf")
