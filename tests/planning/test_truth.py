"""Formulas against buffer sizes that llama.cpp printed on other people's machines."""

from __future__ import annotations

import pytest

from appliance.planning import host_compute, kv_bytes, state_bytes
from tests.planning import accuracy, predictions, truth
from tests.planning.predictions import Checked
from tests.planning.truth import MIB, Row

ROWS = {row["id"]: row for row in truth.rows()}
CHECKS = [check for row in ROWS.values() if row["engine"] == "llama.cpp" for check in predictions.checks(row)]


def _off(value: float, wanted: float) -> float:
    return abs(value - wanted) / wanted


def _compute(group: predictions.Group) -> list[Checked]:
    return [c for c in CHECKS if c.what == "compute" and predictions.group_of(c.row) == group]


def _share(found: list[Checked], bound: float) -> float:
    return sum(abs(check.error) <= bound for check in found) / len(found)


def test_kv_cache_is_within_half_a_percent() -> None:
    found = [check for check in CHECKS if check.what == "kv"]

    assert len(found) >= 40
    assert _share(found, 0.005) >= 0.95


def test_recurrent_state_is_exact() -> None:
    found = [check for check in CHECKS if check.what == "rs"]

    assert len(found) >= 10
    assert _share(found, 0.005) == 1.0


def test_kv_and_state_also_of_forks_and_other_engines() -> None:
    others = [row for row in ROWS.values() if row["engine"] != "llama.cpp" and "kv" in row["checks"]]
    close = [
        _off(kv_bytes(truth.shape(row), truth.load(row)) / MIB, truth.logged(row, "kv_mib")) <= 0.005
        for row in others
    ]

    assert len(others) >= 50
    assert all(close)


def test_compute_of_one_gpu_that_has_all_is_within_a_tenth() -> None:
    found = _compute("exact")

    assert len(found) >= 29
    assert _share(found, 0.10) >= 0.95


def test_compute_of_the_current_era_is_within_six_percent_on_one_gpu() -> None:
    found = [check for check in _compute("exact") if check.row["era"] == "new"]

    assert len(found) >= 14
    assert max(abs(check.error) for check in found) < 0.06


def test_compute_elsewhere_is_never_under_the_log_by_more_than_a_tenth() -> None:
    found = _compute("bounded")

    assert len(found) >= 12
    assert min(check.error for check in found) >= -0.10
    # a bound that is far too high would keep a model off a card for nothing
    assert sorted(check.error for check in found)[len(found) // 2] < 0.10


@pytest.mark.parametrize(
    "row", [r for r in ROWS.values() if r["multi_gpu"] and "compute" in r["checks"]], ids=lambda r: r["id"]
)
def test_each_of_several_devices_is_bounded(row: Row) -> None:
    for index, name in enumerate(predictions.devices(row)):
        logged = row["device_buffers"][name].get("compute_mib")
        if logged is not None:
            assert predictions.compute_of(row, index) >= 0.90 * logged, name


@pytest.mark.parametrize("name", ["s001", "s003", "s004", "s005", "s007", "s011", "s014", "s039"])
def test_host_part_of_the_compute_buffers(name: str) -> None:
    row = ROWS[name]
    found = host_compute(truth.shape(row), truth.load(row), "new") / MIB

    assert _off(found, row["device_buffers"]["Vulkan_Host"]["compute_mib"]) < 0.02


def test_speculative_decoding_keeps_further_states() -> None:
    row = ROWS["s008"]
    one = state_bytes(truth.shape(row), truth.load(row)) / MIB

    assert one == pytest.approx(149.62, abs=0.01)
    assert truth.logged(row, "rs_mib") == pytest.approx(3 * one, abs=0.02)


def test_the_published_table_is_up_to_date() -> None:
    """`make accuracy` writes it."""
    assert accuracy.TARGET.read_text(encoding="utf-8") == accuracy.page()
