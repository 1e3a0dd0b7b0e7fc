"""The load mode reaches the engine, and it loads by it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from appliance.engines import Engine, EngineKind
from appliance.engines.arguments import arguments
from appliance.engines.values import LoadMode
from appliance.paths import Paths
from tests.engines.launches import build, launch, without_devices

KNOWN = frozenset({"--load-mode", "--no-mmap", "--metrics", "--no-ui", "--cors-origins"})


def flags(mode: LoadMode, known: frozenset[str]) -> list[str]:
    wanted = replace(launch(Path("/m.gguf")), load_mode=mode)
    return list(arguments(wanted, "/run/e.sock", 0, known, fit=False, warmup=True))


def test_the_default_is_left_to_the_engine() -> None:
    assert not {"--load-mode", "-lm", "--no-mmap"} & set(flags("auto", KNOWN))


def test_each_build_is_told_in_its_own_words() -> None:
    new = flags("none", KNOWN)
    assert new[new.index("--load-mode") + 1] == "none"
    old = flags("none", KNOWN - {"--load-mode"})
    assert "--no-mmap" in old
    assert "--load-mode" not in old
    oldest = flags("none", KNOWN - {"--load-mode", "--no-mmap"})
    assert not {"--load-mode", "--no-mmap"} & set(oldest), "it reads its file as it always does"


@pytest.mark.parametrize("kind", ["llama-server", "xllamacpp"])
@pytest.mark.parametrize(("mode", "said"), [("auto", "load_mode = mmap"), ("none", "load_mode = none")])
async def test_the_real_engines_load_by_it(
    kind: EngineKind, mode: LoadMode, said: str, smollm2_path: Path, paths: Paths
) -> None:
    with without_devices():
        engine = Engine(build(kind), replace(launch(smollm2_path), load_mode=mode), paths=paths)
        await engine.start()
        try:
            await engine.wait_ready()
            assert any(said in line.line for line in engine.lines(0, 10_000))
        finally:
            await engine.stop()


async def test_llama_cpp_python_loads_without_mapping_too(smollm2_path: Path, paths: Paths) -> None:
    with without_devices():
        wanted = replace(launch(smollm2_path), load_mode="none")
        engine = Engine(build("llama-cpp-python"), wanted, paths=paths)
        await engine.start()
        try:
            await engine.wait_ready()
            assert not any("CPU_Mapped" in line.line for line in engine.lines(0, 10_000))
        finally:
            await engine.stop()
