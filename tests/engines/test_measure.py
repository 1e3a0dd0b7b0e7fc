"""A plan measured by the real engines, without the model's data; and engines that do not answer."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from appliance.engines import Build, EngineKind, measure
from appliance.engines.logparse import on_host
from appliance.engines.refusals import Refused
from appliance.engines.stubs import scratch
from appliance.gguf import StubPart, read_header, read_slim, write_stubs
from appliance.paths import Paths
from appliance.planning import Plan
from appliance.units import MIB
from tests.engines.launches import build, launch, plan, without_devices
from tests.engines.loads import buffers_of
from tests.gguf.splitting import split_header
from tests.gguf.stubs import stub_parts
from tests.gguf.writer import F32, STRING, entry
from tests.planning.model_files import MODELS, Shape

KINDS: tuple[EngineKind, ...] = ("llama-server", "xllamacpp")
ROOT = Path(__file__).resolve().parents[2]
PARTS = (StubPart("m.gguf", b"GGUF", 1_000, 4),)
"""Enough for a script, which reads no model."""
BEGINS = "common_params_fit_impl: getting device memory data for initial parameters:"
ROW = "common_memory_breakdown_print: |   - Host |   129 =    92 +      22 +      15      |"


@pytest.fixture(params=KINDS)
async def here(request: pytest.FixtureRequest) -> AsyncIterator[Build]:
    with without_devices():
        yield build(request.param)


def slim(path: Path) -> tuple[StubPart, ...]:
    return (read_slim(path).part(path.name),)


def in_ram(buffers: Mapping[str, Mapping[str, float]], purpose: str) -> float:
    assert all(on_host(name) for name in buffers)
    return sum(sizes.get(purpose, 0.0) for sizes in buffers.values())


@pytest.mark.parametrize(
    ("model", "ctx", "parallel"),
    [("smollm2_path", 512, 2), ("smollm2_path", 8_192, 1), ("gemma3_path", 2_048, 4)],
)
async def test_the_engine_measures_what_it_will_load(
    here: Build, model: str, ctx: int, parallel: int, paths: Paths, request: pytest.FixtureRequest
) -> None:
    path: Path = request.getfixturevalue(model)
    wanted = plan(ctx=ctx, parallel=parallel)
    rows = await measure(here, slim(path), wanted, paths=paths)
    assert rows is not None
    real = await buffers_of(here, launch(path, wanted=wanted), paths)
    host = rows["Host"]
    assert host.context / MIB == pytest.approx(in_ram(real, "kv"), abs=1.0)
    assert host.compute / MIB == pytest.approx(in_ram(real, "compute"), abs=1.0)
    weights = sum(tensor.n_bytes for tensor in read_header(path).tensors)  # the log says file spans
    assert host.model / MIB == pytest.approx(weights / MIB, abs=2.0)  # two rows, each cut off


async def test_a_vocabulary_changes_nothing(here: Build, gemma3_path: Path, paths: Paths) -> None:
    whole = await measure(here, stub_parts(gemma3_path), plan(), paths=paths, timeout_s=30)

    assert whole is not None
    assert whole == await measure(here, slim(gemma3_path), plan(), paths=paths)


async def test_a_split_model_is_measured_like_one_file(here: Build, smollm2_path: Path, paths: Paths) -> None:
    one = await measure(here, slim(smollm2_path), plan(), paths=paths)

    assert one is not None
    for n_parts in (2, 3):
        assert await measure(here, split_header(smollm2_path, n_parts), plan(), paths=paths) == one


async def test_no_tensor_data_is_needed(
    here: Build, smollm2_path: Path, paths: Paths, tmp_path: Path
) -> None:
    """The header alone, of a model that takes 180 times the disk: what follows never existed."""
    (part,) = slim(smollm2_path)
    assert isinstance(part.source, bytes)
    assert len(part.source) == read_header(write_stubs([part], tmp_path)).data_offset
    on_disk = (tmp_path / "model.gguf").stat().st_blocks * 512
    assert on_disk < part.size / 180

    rows = await measure(here, [part], plan(), paths=paths)

    assert rows is not None
    assert rows["Host"].model // MIB == part.size // MIB


async def test_what_draft_models_make_the_model_keep_is_measured(
    here: Build, smollm2_path: Path, paths: Paths
) -> None:
    """The draft model's own bytes are not among the figures; that its guesses are checked at once is."""
    alone = await measure(here, slim(smollm2_path), plan(), paths=paths)
    flags = (*plan().flags, "-ngld", "0")
    drafted = await measure(
        here, slim(smollm2_path), with_draft(plan(), flags), paths=paths, draft=slim(smollm2_path)
    )

    assert alone is not None
    assert drafted is not None
    assert drafted["Host"].model == alone["Host"].model
    assert drafted["Host"].context == alone["Host"].context
    assert 0 <= drafted["Host"].compute - alone["Host"].compute <= 8 * MIB


def with_draft(wanted: Plan, flags: tuple[str, ...]) -> Plan:
    return replace(wanted, draft="cpu", flags=flags)


class Normed(Shape):
    """With what an engine looks for before it gets as far as the cache."""

    def _metadata(self) -> Iterator[bytes]:
        yield from super()._metadata()
        yield entry(f"{self.arch}.attention.layer_norm_rms_epsilon", F32, 1e-6)
        yield entry("tokenizer.ggml.model", STRING, "no_vocab")


SMALL = MODELS["qwen3-0.6b"]
HEADS_OF_80 = Normed("qwen2", 2, 1_280, 2_560, 16, 16, 80, 1_000, 4_096)
UNKNOWN = replace(SMALL, arch="frobnik", layers=2)
FEW = replace(MODELS["qwen3-30b-a3b"], layers=2)


@pytest.mark.parametrize(
    ("shape", "kv", "sentence"),
    [
        (UNKNOWN, "f16", "unknown model architecture: 'frobnik'"),
        (replace(FEW, experts=(8, 9, 768)), "f16", "GGML_ASSERT("),
        (HEADS_OF_80, "q8_0", "does not divide n_embd_head_k"),
        (replace(SMALL, layers=2), "f16", "key not found in model: qwen3."),
    ],
    ids=["architecture", "experts", "cache type", "key"],
)
async def test_what_the_engine_refuses_is_told_in_its_words(
    here: Build, shape: Shape, kv: str, sentence: str, paths: Paths, tmp_path: Path
) -> None:
    path = shape.write(tmp_path / "m.gguf")
    wanted = plan()
    flags = tuple(kv if flag == "f16" else flag for flag in wanted.flags)

    with pytest.raises(Refused) as caught:
        await measure(here, slim(path), replace(wanted, flags=flags, kv_type=kv), paths=paths)
    assert sentence in caught.value.message
    assert str(paths.cache) not in caught.value.message
    assert left(paths) == []


@pytest.mark.parametrize(
    "lines",
    [
        "0.00.009.366 E llama_model_load: error loading model: std::bad_alloc",
        "ggml_vulkan: Device memory allocation of size 9 failed.\n"
        "0.00.009.366 E llama_init_from_model: failed to initialize the context: failed to allocate buffers",
        "/src/llama-vocab.cpp:7: GGML_ASSERT(type != LLAMA_VOCAB_TYPE_NONE) failed",
        "0.00.072.245 I llama_model_loader: - kv 1: general.name str = error loading model: a jest",
    ],
    ids=["out of RAM", "out of memory", "the stub's vocabulary", "the header's words"],
)
async def test_what_is_no_word_on_the_model_is_no_refusal(lines: str, paths: Paths) -> None:
    said = paths.data / "said"
    said.write_text(lines + "\n")

    here = scripted(paths, f"cat {said} >&2; exit 1")
    assert await measure(here, PARTS, plan(), paths=paths, timeout_s=30) is None


async def test_figures_win_over_an_error_line(paths: Paths) -> None:
    said = "0.00.000.001 E llama_model_load: error loading model: once"
    here = scripted(paths, f"echo '{said}'; echo '{BEGINS}'; echo '{ROW}'; echo next; exec sleep 60")

    rows = await measure(here, PARTS, plan(), paths=paths, timeout_s=30)
    assert rows is not None
    assert rows["Host"].model == 92 * MIB


@pytest.mark.parametrize(
    "does",
    [
        "exit 1",
        "kill -SEGV $$",
        "echo 'common_fit_params: failed to fit params to free device memory: no' >&2; exec sleep 60",
        f"echo '{BEGINS}'; echo '{ROW}'; exit 0",
    ],
    ids=["it ends", "it crashes", "it has no dry run", "it ends within its table"],
)
async def test_an_engine_without_figures_is_left_at_once(does: str, paths: Paths) -> None:
    assert await measure(scripted(paths, does), PARTS, plan(), paths=paths, timeout_s=30) is None
    assert left(paths) == []


async def test_an_engine_that_says_nothing_is_ended_in_time(paths: Paths) -> None:
    began = time.monotonic()

    assert await measure(scripted(paths, "exec sleep 60"), PARTS, plan(), paths=paths, timeout_s=1) is None
    assert time.monotonic() - began < 10.0
    assert left(paths) == []
    assert psutil.Process().children(recursive=True) == []


async def test_a_cancel_leaves_nothing(paths: Paths) -> None:
    fifo = paths.data / "started"
    os.mkfifo(fifo)
    asking = asyncio.create_task(
        measure(scripted(paths, f"echo >{fifo}; exec sleep 60"), PARTS, plan(), paths=paths, timeout_s=60)
    )
    await asyncio.to_thread(fifo.read_text)
    asking.cancel()

    with pytest.raises(asyncio.CancelledError):
        await asking
    assert left(paths) == []
    assert psutil.Process().children(recursive=True) == []


def test_what_a_killed_measurement_left_is_removed_by_a_later_one(paths: Paths) -> None:
    script = textwrap.dedent(
        f"""
        import time
        from pathlib import Path
        from appliance.engines.stubs import scratch
        from appliance.paths import Paths
        with scratch(Paths(*[Path({str(paths.cache)!r})] * 5)) as folder:
            (folder / "model.gguf").touch()
            print(folder, flush=True)
            time.sleep(60)
        """
    )
    child = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    folder = Path(child.stdout.readline().strip())
    foreign = folder.parent / "by-hand"
    foreign.mkdir()

    with scratch(paths) as mine:
        assert mine.stat().st_mode & 0o777 == 0o700
        assert (folder / "model.gguf").exists()  # its owner lives
    child.kill()
    child.wait(10)
    child.stdout.close()
    os.utime(foreign, (0, 0))
    with scratch(paths) as mine:
        assert [path.name for path in mine.parent.iterdir()] == [mine.name]
    assert list(mine.parent.iterdir()) == []


async def test_what_cannot_be_written_is_no_reason_to_fail(paths: Paths) -> None:
    """The cache is a file."""
    (paths.cache / "stubs").write_text("in the way")

    assert await measure(build("xllamacpp"), PARTS, plan(), paths=paths) is None


async def test_what_has_no_dry_run_is_not_started(paths: Paths) -> None:
    started = paths.data / "started"
    here = scripted(paths, f"touch {started}")
    for one, wanted in (
        (here, replace(plan(), split="tensor")),
        (replace(here, kind="llama-cpp-python"), plan()),
        (replace(here, usable=False), plan()),
    ):
        assert await measure(one, PARTS, wanted, paths=paths) is None
    assert not started.exists()


def scripted(paths: Paths, does: str) -> Build:
    """An engine that does one thing; of its flags it knows none."""
    program = paths.data / "llama-server"
    program.write_text(f'#!/bin/sh\n[ "$1" = --help ] && exit 0\n{does}\n')
    program.chmod(0o755)
    return Build("llama-server", str(program), "10434", "llama-server 10434 (scripted)")


def left(paths: Paths) -> list[Path]:
    return [*(paths.cache / "stubs").iterdir(), *paths.runtime.iterdir()]
