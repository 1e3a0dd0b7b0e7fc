"""How long an engine may be silent: never shorter than its longest batch takes, and never for ever."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.engines import EngineKind, Launch
from appliance.engines.pace import Pace, longest_step, patience_s
from tests.engines.launches import MODEL_ID, plan

LINE = "0.19.324.290 I slot print_timing: id  3 | task 0 | prompt eval time = {ms:10.2f} ms / {n:5d} tokens ("


def launched(*flags: str, ctx: int = 4096, parallel: int = 2, mmproj: Path | None = None) -> Launch:
    wanted = plan(ctx=ctx, parallel=parallel)
    return Launch(MODEL_ID, Path("m.gguf"), replace(wanted, flags=(*wanted.flags, *flags)), mmproj=mmproj)


def test_the_slowest_of_the_last_prompts_counts_and_short_ones_do_not() -> None:
    pace = Pace()
    pace.feed(LINE.format(ms=19324.29, n=37))
    assert [pace.tokens_per_s] == [None]
    pace.feed(LINE.format(ms=1000, n=200))
    pace.feed("llama_perf_context_print: prompt eval time =    4000.00 ms /   400 tokens (   10.00 ms")
    pace.feed("slot release: id 3 | stop processing: n_tokens = 44, truncated = 0")
    assert [pace.tokens_per_s] == [100.0]
    for _ in range(8):  # what was long ago is forgotten
        pace.feed(LINE.format(ms=1000, n=200))
    assert [pace.tokens_per_s] == [200.0]


@pytest.mark.parametrize(
    ("kind", "flags", "ctx", "tokens"),
    [
        ("llama-server", (), 4096, 2048),
        ("llama-server", ("-b", "256"), 4096, 256),
        ("xllamacpp", ("--batch-size", "64"), 4096, 64),
        ("llama-server", (), 512, 1024),  # all slots together hold no more
        ("llama-server", ("-b", "rubbish"), 4096, 2048),
        ("llama-cpp-python", ("-b", "256"), 4096, 4096),  # it shows nothing before the first token
    ],
)
def test_the_longest_step_is_a_batch(kind: EngineKind, flags: tuple[str, ...], ctx: int, tokens: int) -> None:
    assert longest_step(kind, launched(*flags, ctx=ctx)) == tokens


def test_an_unknown_speed_and_pictures_get_a_quarter_of_an_hour() -> None:
    assert patience_s("llama-server", launched(), None) == 900
    assert patience_s("llama-server", launched(mmproj=Path("p.gguf")), 5_000.0) == 900


def test_a_fast_engine_gets_a_minute_and_one_without_counters_five() -> None:
    assert patience_s("llama-server", launched(), 2_000.0) == 60
    assert patience_s("llama-cpp-python", launched(), 2_000.0) == 300


@given(st.floats(0.05, 100_000), st.sampled_from([64, 512, 2048, 8192]))
def test_no_batch_at_the_measured_speed_is_a_hang_and_there_is_an_end(speed: float, batch: int) -> None:
    limit = patience_s("llama-server", launched("-b", str(batch), ctx=65_536), speed)
    assert limit >= 1.9 * batch / speed
    assert limit <= max(1_800, 2.1 * batch / speed)
