"""The rows of `models list`: what is here, how much of it, and whether it fits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from appliance import settings
from appliance.engines import Build, Choice
from appliance.errors import ApplianceError, NoEngine, NotVerified
from appliance.gguf import Header, read_header
from appliance.hardware import Machine
from appliance.operations import fits
from appliance.operations.models import Library
from appliance.operations.rows import rows
from appliance.operations.survey import Survey, glance
from appliance.paths import Paths
from appliance.planning import DeviceMemory
from appliance.units import GIB, MIB

REF = "smollm2-135m-instruct:Q4_1"


@pytest.fixture
def library(tmp_path: Path) -> Library:
    root = tmp_path / "home"
    paths = Paths(root / "config", root / "data", root / "state", root / "cache", root / "run").make()
    return Library.open(paths, settings.Settings())


def machine(ram: int | None = 16 * GIB) -> Machine:
    return Machine((), ram, ram, 4, 8, None, "a CPU", ())


def seen(*devices: DeviceMemory, ram: int | None = 16 * GIB) -> Survey:
    build = Build("llama-server", "/x", "b10434", "llama-server b10434", devices, bool(devices))
    return Survey(machine(ram), (build,), Choice(build, "the only one"), None)


def card(free: int) -> DeviceMemory:
    return DeviceMemory("CUDA0", "card", "cuda", free, free)


def row(library: Library, ref: str, looked: Survey | None, **further: Any) -> dict[str, Any]:
    return next(found for found in rows(library, looked=looked, **further) if found["ref"] == ref)


async def take(library: Library, path: Path) -> None:
    await library.store.adopt(library.resolve(REF), [path], "reference")


class TestFits:
    async def test_what_is_here_is_planned_from_its_header(
        self, library: Library, smollm2_path: Path
    ) -> None:
        await take(library, smollm2_path)
        found = row(library, REF, seen(card(8 * GIB)))
        assert found["fits"] == {
            "where": "gpu",
            "text": "all layers on CUDA0, 4 x 8,192 tokens",
            "estimated": False,
        }
        assert row(library, REF, seen())["fits"]["where"] == "cpu"
        assert row(library, REF, seen(ram=600 * MIB))["fits"]["where"] == "no"

    def test_what_is_not_here_is_estimated_by_its_size(self, library: Library) -> None:
        assert row(library, REF, seen(card(8 * GIB)))["fits"]["where"] == "gpu"
        found = row(library, "qwen3-8b:Q4_K_M", seen(card(4 * GIB)))["fits"]
        assert (found["where"], found["estimated"]) == ("partly", True)
        large = max(library.catalog.models.values(), key=lambda model: model.variants[0].size)
        assert row(library, f"{large.id}:{large.variants[0].quant}", seen())["fits"]["where"] == "no"

    async def test_a_header_is_read_once_for_each_state_of_the_file(
        self, library: Library, smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        reads = list[Path]()

        def counted(path: Path) -> Header:
            reads.append(path)
            return read_header(path)

        monkeypatch.setattr("appliance.operations.fits.read_header", counted)
        fits._read.cache_clear()
        await take(library, smollm2_path)
        for _ in range(3):
            rows(library, looked=seen())
        assert reads == [smollm2_path]

    def test_without_an_engine_it_is_not_known_and_says_why(self, library: Library) -> None:
        looked = Survey(machine(), (), None, NoEngine("No engine can be started here."))
        found = row(library, REF, looked)["fits"]
        assert (found["where"], found["text"]) == (None, "No engine can be started here.")

    def test_where_no_gpu_is_no_engine_has_to_be_asked(self, library: Library) -> None:
        assert row(library, REF, Survey(machine(), (), None, None))["fits"]["where"] == "cpu"

    def test_nobody_looked(self, library: Library) -> None:
        assert row(library, REF, None)["fits"] is None

    async def test_a_glance_at_this_machine(self, library: Library) -> None:
        looked = await glance(library.settings)
        assert looked.machine.ram_total
        assert row(library, REF, looked)["fits"]["where"] in ("gpu", "partly", "cpu")


class TestStates:
    async def test_a_reference_is_said_and_takes_no_disk(self, library: Library, smollm2_path: Path) -> None:
        await take(library, smollm2_path)
        found = row(library, REF, None)
        assert (found["state"], found["referenced"], found["arrived"]) == ("here", True, None)
        assert found["disk"] < MIB
        assert found["path"] == str(smollm2_path)

    async def test_a_load_is_remembered(self, library: Library, smollm2_path: Path) -> None:
        await take(library, smollm2_path)
        assert row(library, REF, None)["used_at"] is None
        library.remember(REF)
        assert row(library, REF, None, loaded=REF)["used_at"] > 1_700_000_000

    async def test_partial_downloading_and_damaged(self, library: Library, smollm2_path: Path) -> None:
        ref = library.resolve(REF)
        stored = (await library.store.adopt(ref, [smollm2_path], "copy")).stored
        assert stored is not None
        with stored.main.open("r+b") as file:
            file.seek(50_000_000)
            file.write(b"damage")
        with pytest.raises(NotVerified):
            await library.store.verify(ref)
        found = row(library, REF, None)
        assert found["state"] == "damaged"
        assert found["arrived"] == ref.variant.size - (8 << 20)
        assert row(library, REF, None, downloading=frozenset({REF}))["state"] == "downloading"

        part = next(stored.main.parent.glob("*.part"))
        part.rename(stored.main)
        next(stored.main.parent.glob("*.log")).unlink()
        assert library.remove(REF) >= ref.variant.size
        assert row(library, REF, None)["state"] == "absent"
        with pytest.raises(ApplianceError):
            library.remove(REF)
