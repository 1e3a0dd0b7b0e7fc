"""The memory tables of a dry run: lines of real engines, with and without a draft model."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.engines.breakdown import Breakdown
from appliance.planning import MeasuredRow
from appliance.units import MIB

RECORDED = Path(__file__).parent / "recorded"
BEGINS = "common_params_fit_impl: getting device memory data for initial parameters:"
EXTRA = "operator(): getting device memory data for the extra model at a context size of 1024:"
HEAD = "common_memory_breakdown_print: | memory breakdown [MiB] | total   free    self   model   context |"
MODEL = "common_memory_breakdown_print: |   - Host |   129 =    92 +      22 +      15      |"
DRAFT = "common_memory_breakdown_print: |   - Host |    31 =    28 +       1 +       2      |"
AFTER = "common_params_fit_impl: projected to use 259 MiB of host memory vs. 24105 MiB of total host memory"
NO_FIT = "common_fit_params: failed to fit params to free device memory: it is not implemented, abort"
SAID = "srv load_model: [spec] estimated memory usage of draft model is 31.36 MiB"


def read(*lines: str, drafted: bool = False) -> Breakdown:
    table = Breakdown(drafted=drafted)
    for line in lines:
        table.feed(line)
    return table


def test_a_recorded_dry_run() -> None:
    table = read(*(RECORDED / "llama-server-vulkan-fit.log").read_text().splitlines())
    assert table.rows == {
        "Vulkan0": MeasuredRow(51 * MIB, 33 * MIB, 15 * MIB),
        "Host": MeasuredRow(68 * MIB, 57 * MIB, 4 * MIB),
    }


def test_a_table_is_done_only_behind_its_last_row() -> None:
    table = read(BEGINS, HEAD, MODEL)
    assert (table.over, table.rows) == (False, None)
    table.feed(AFTER)
    assert table.over
    table.feed(MODEL)  # printed again when the server ends
    assert table.rows == {"Host": MeasuredRow(92 * MIB, 22 * MIB, 15 * MIB)}


@pytest.mark.parametrize(
    "lines",
    [
        (HEAD, DRAFT, SAID, BEGINS, HEAD, MODEL),
        (BEGINS, HEAD, MODEL, EXTRA, HEAD, DRAFT),
    ],
    ids=["the draft model first (10434)", "the draft model last (11549)"],
)
def test_the_table_of_a_draft_model_is_another_one(lines: tuple[str, ...]) -> None:
    table = read(*lines, AFTER, drafted=True)
    assert table.rows == {"Host": MeasuredRow(92 * MIB, 22 * MIB, 15 * MIB)}


@pytest.mark.parametrize("drafted", [False, True])
def test_where_there_is_no_dry_run_the_wait_is_over_before_the_load(drafted: bool) -> None:
    table = read("common_init_: fitting params to device memory ...", NO_FIT, drafted=drafted)
    assert (table.over, table.rows) == (True, None)


def test_rows_of_special_cpu_buffers_belong_to_the_host() -> None:
    start = "0.00.8 I common_memory_breakdown_print: |   - "
    table = read(
        start + "CUDA0 (NVIDIA GeForce RTX 4070) |  8187 = 7001 + ( 921 =   700 +     150 +      71) + 265 |",
        start + "Host       |   300 =   200 +      60 +      40    |",
        start + "CPU_REPACK |    82 =    82 +       0 +       0    |",
        start + "AMX        |   190 =   190 +       0 +       0    |",
        AFTER,
    )
    assert table.rows == {
        "CUDA0": MeasuredRow(700 * MIB, 150 * MIB, 71 * MIB),
        "Host": MeasuredRow(472 * MIB, 60 * MIB, 40 * MIB),
    }
