"""What makes saved prompts those of another engine, and what does not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from appliance.engines import Adapter, Build, Launch
from appliance.engines.slots import converses, key_of, why_never
from tests.engines.launches import build, launch, plan

MODEL = ["ab" * 32, "cd" * 32]


@pytest.fixture
def server(tmp_path: Path) -> Build:
    """A program with a library beside it."""
    (tmp_path / "bin").mkdir()
    for name in ("llama-server", "libllama.so"):
        (tmp_path / "bin" / name).write_bytes(b"program")
    return Build("llama-server", str(tmp_path / "bin" / "llama-server"), "1", "llama-server 1")


def with_flags(*flags: str) -> Launch:
    return launch(Path("m.gguf"), wanted=replace(plan(), flags=flags))


FLAGS = ("-ngl", "5", "-c", "1024", "-np", "2", "-fit", "off", "-ctk", "f16", "-ctv", "f16", "-fa", "auto",
         "-b", "2048", "-ub", "512", "-t", "2")  # fmt: skip


def changed(name: str, value: str) -> tuple[str, ...]:
    at = FLAGS.index(name)
    return (*FLAGS[: at + 1], value, *FLAGS[at + 2 :])


@pytest.mark.parametrize(
    "flags",
    [
        changed("-ngl", "31"), changed("-b", "512"), changed("-ub", "128"), changed("-t", "8"),
        (*FLAGS, "-dev", "CUDA0"), (*FLAGS, "-ts", "3,1"), (*FLAGS, "-sm", "row"), (*FLAGS, "-ncmoe", "4"),
        (*FLAGS, "-tb", "4"), (*FLAGS, "--cache-reuse", "256"),
    ],
)  # fmt: skip
def test_how_fast_an_engine_runs_does_not_matter(server: Build, flags: tuple[str, ...]) -> None:
    assert key_of(server, with_flags(*flags), MODEL) == key_of(server, with_flags(*FLAGS), MODEL)


@pytest.mark.parametrize(
    ("flags", "same_kind"),
    [
        (changed("-c", "2048"), True),
        (changed("-np", "4"), True),
        (changed("-ctk", "q8_0"), False),
        (changed("-fa", "on"), False),
        ((*FLAGS, "--kv-unified"), False),
        ((*FLAGS, "--swa-full"), False),
        ((*FLAGS, "--rope-scaling", "yarn"), False),
        ((*FLAGS, "--some-flag-of-next-year", "1"), False),
    ],
)
def test_what_the_cache_depends_on_is_another_folder_and_mostly_another_proof(
    server: Build, flags: tuple[str, ...], same_kind: bool
) -> None:
    one, other = key_of(server, with_flags(*FLAGS), MODEL), key_of(server, with_flags(*flags), MODEL)
    assert one.folder != other.folder
    assert (one.kind == other.kind) is same_kind


def test_another_engine_of_the_same_name_is_another(server: Build, tmp_path: Path) -> None:
    before = key_of(server, with_flags(*FLAGS), MODEL)
    assert key_of(server, with_flags(*FLAGS), MODEL) == before
    (tmp_path / "bin" / "libllama.so").write_bytes(b"another program")
    after = key_of(server, with_flags(*FLAGS), MODEL)
    assert after.folder != before.folder
    assert after.kind != before.kind
    assert key_of(replace(server, version="2"), with_flags(*FLAGS), MODEL).folder != after.folder


def test_each_shard_and_each_adapter_counts(server: Build) -> None:
    one = key_of(server, with_flags(*FLAGS), MODEL)
    assert key_of(server, with_flags(*FLAGS), [MODEL[0], "ee" * 32]).folder != one.folder
    tuned = replace(with_flags(*FLAGS), lora=(Adapter(Path("a.gguf"), "77" * 32, 1.0),))
    softer = replace(tuned, lora=(Adapter(Path("b.gguf"), "77" * 32, 0.5),))
    folders = {key_of(server, what, MODEL).folder for what in (with_flags(*FLAGS), tuned, softer)}
    assert len(folders) == 3


def test_the_package_of_this_environment_has_files_to_tell_it_by() -> None:
    found = key_of(build("xllamacpp"), with_flags(*FLAGS), MODEL)
    nothing = key_of(replace(build("xllamacpp"), home="/nonexistent"), with_flags(*FLAGS), MODEL)
    assert found.files != nothing.files


def test_what_can_not_be_kept_is_known_beforehand(server: Build) -> None:
    plain = with_flags(*FLAGS)
    pictures = replace(plain, mmproj=Path("p.gguf"), plan=replace(plain.plan, mmproj="cpu"))
    drafted = replace(plain, draft=Path("d.gguf"), plan=replace(plain.plan, draft="cpu"))
    left_out = replace(plain, mmproj=Path("p.gguf"), draft=Path("d.gguf"))
    assert [why_never(server, one) is None for one in (plain, left_out, pictures, drafted)] == [
        True,
        True,
        False,
        False,
    ]
    assert why_never(Build("llama-cpp-python", None, "0.3", "llama-cpp-python 0.3"), plain) is not None
    vectors = replace(plain, embedding=True)
    assert not converses(vectors, ["embedding"])
    assert converses(vectors, ["embedding", "chat"])
    assert not converses(replace(plain, reranking=True), ["rerank"])
