"""The rows of `models list`: what is here, how much of it, and whether it fits."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from appliance import settings
from appliance.engines import Build, Choice
from appliance.errors import ApplianceError, NoEngine, NotVerified
from appliance.gguf import Slim, read_slim
from appliance.hardware import Machine
from appliance.operations.lessons.learning import Lessons
from appliance.operations.machine.survey import Survey, glance
from appliance.operations.models import Library
from appliance.operations.plans import fits
from appliance.operations.plans.answer import answer
from appliance.operations.plans.header_cache import HeaderCache
from appliance.operations.plans.headers import of_stored
from appliance.operations.plans.plan import Wishes, request_for
from appliance.operations.rows import rows
from appliance.paths import Paths
from appliance.planning import DeviceMemory, MeasuredRow, make_plan
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


def spoil(file: Path) -> None:
    """It is a big-endian file now."""
    with file.open("r+b") as opened:
        opened.write(b"FUGG")


class TestFits:
    async def test_what_is_here_is_planned_from_its_header(
        self, library: Library, smollm2_path: Path
    ) -> None:
        await take(library, smollm2_path)
        found = row(library, REF, seen(card(8 * GIB)))
        assert found["fits"] == {
            "where": "gpu",
            "text": "all layers on CUDA0, 4 x 8,192 tokens",
            "how": "computed",
            "estimated": False,
        }
        assert row(library, REF, seen())["fits"]["where"] == "cpu"
        assert row(library, REF, seen(ram=600 * MIB))["fits"]["where"] == "no"

    def test_what_is_not_here_is_estimated_by_its_size(self, library: Library) -> None:
        assert row(library, REF, seen(card(8 * GIB)))["fits"]["where"] == "gpu"
        found = row(library, "qwen3-8b:Q4_K_M", seen(card(4 * GIB)))["fits"]
        assert (found["where"], found["how"], found["estimated"]) == ("partly", "rule", True)
        large = max(library.catalog.models.values(), key=lambda model: model.variants[0].size)
        assert row(library, f"{large.id}:{large.variants[0].quant}", seen())["fits"]["where"] == "no"

    async def test_a_header_is_read_once_for_each_state_of_the_file(
        self, library: Library, smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        reads = list[Path]()

        def counted(path: Path) -> Slim:
            reads.append(path)
            return read_slim(path)

        monkeypatch.setattr("appliance.operations.plans.headers.read_slim", counted)
        await take(library, smollm2_path)
        for _ in range(3):
            rows(library, looked=seen())
        fits._read.cache_clear()  # another process: the disk remembers
        rows(library, looked=seen())
        assert reads == [smollm2_path]

    def test_a_header_that_was_seen_once_says_more_than_the_size(
        self, library: Library, smollm2_path: Path
    ) -> None:
        """Of a model that is not here, as after a look at its plan."""
        pin = library.resolve(REF).variant.main.sha256
        HeaderCache(library.paths).put(pin, read_slim(smollm2_path), proven=False)
        found = row(library, REF, seen(card(8 * GIB)))
        assert found["state"] == "absent"
        assert found["fits"]["how"] == "computed"
        assert found["fits"]["text"] == "all layers on CUDA0, 4 x 8,192 tokens"

    async def test_the_engines_own_figures_win(self, library: Library, smollm2_path: Path) -> None:
        """It measured this plan, and needs more than there is."""
        await take(library, smollm2_path)
        looked, pin = seen(card(8 * GIB)), library.resolve(REF).variant.main.sha256
        subject = of_stored(library, library.store.list()[0], None)
        plan = make_plan(
            subject.header, looked.devices(), looked.host(), request_for(library.settings, Wishes()),
            model=REF, engine_build="llama-server b10434",
        )  # fmt: skip
        lessons = Lessons(library.paths.learned)
        for more, where in ((0, "gpu"), (9 * GIB, "no")):
            figures = {
                "CUDA0": MeasuredRow(plan.devices[0].model + more, 0, 0),
                "Host": MeasuredRow(28 * MIB, 0, 0),
            }
            lessons.note_measured(pin, "llama-server b10434", plan.flags, figures)
            found = row(library, REF, looked)["fits"]
            assert (found["where"], found["how"]) == (where, "measured")
        assert row(library, REF, seen())["fits"]["how"] == "computed"  # another plan

    async def test_a_broken_header_is_said(
        self, library: Library, smollm2_path: Path, tmp_path: Path
    ) -> None:
        copy = Path(shutil.copy(smollm2_path, tmp_path))
        await take(library, copy)
        spoil(copy)
        found = row(library, REF, seen())["fits"]
        assert (found["where"], found["how"]) == (None, "computed")
        assert "big endian" in found["text"]

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

    async def test_what_the_engine_measured_is_listed_so_without_asking_it_again(
        self, library: Library, smollm2_path: Path
    ) -> None:
        await take(library, smollm2_path)
        before = row(library, REF, await glance(library.settings, library.paths))["fits"]
        await answer(library, {"model": REF})
        after = row(library, REF, await glance(library.settings, library.paths))["fits"]

        assert (before["how"], after["how"]) == ("computed", "measured")


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
        assert row(library, REF, None, loaded=frozenset({REF}))["used_at"] > 1_700_000_000

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
