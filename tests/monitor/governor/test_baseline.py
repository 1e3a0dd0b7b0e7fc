"""Usual speed, measured speed and the factor between them."""

from __future__ import annotations

import pytest

from appliance.monitor.governor import CPU, SpeedKey, SpeedTracker, ThermalState, power_source, speed_key
from appliance.monitor.governor.baseline import Measured

KEY = speed_key("qwen3-8b:Q4_K_M", "ngl28", "ac", streams=1, tokens=500)


def see(tracker: SpeedTracker, key: SpeedKey, speed: float, state: ThermalState, now: float) -> None:
    tracker.observe(key, speed, state, {CPU}, now)


def usual(tracker: SpeedTracker, key: SpeedKey = KEY) -> float | None:
    found = tracker.baseline(key)
    return None if found is None else found.tokens_per_second


def learned(speed: float = 50.0, key: SpeedKey = KEY) -> SpeedTracker:
    tracker = SpeedTracker()
    for _ in range(5):
        see(tracker, key, speed, "cool", 0)
    return tracker


def slow_down(tracker: SpeedTracker, speed: float, now: float = 1.0, key: SpeedKey = KEY) -> None:
    for _ in range(3):
        see(tracker, key, speed, "warm", now)


def test_there_is_no_baseline_before_five_samples() -> None:
    tracker = SpeedTracker()
    for _ in range(4):
        see(tracker, KEY, 50, "cool", 0)
        assert tracker.baseline(KEY) is None
    see(tracker, KEY, 50, "cool", 0)
    assert usual(tracker) == 50
    assert tracker.measured(CPU, 0) is None
    assert tracker.factor(CPU, 0) == 1.0


def test_the_factor_is_the_median_of_three_requests_over_the_baseline() -> None:
    tracker = learned(50)
    see(tracker, KEY, 5, "warm", 1)
    see(tracker, KEY, 30, "warm", 1)
    assert tracker.factor(CPU, 1) == 1.0  # two are not enough
    see(tracker, KEY, 40, "warm", 1)
    assert tracker.measured(CPU, 1) == Measured(30 / 50, 0.0)
    assert tracker.factor(CPU, 1) == pytest.approx(0.6)


def test_the_factor_stays_within_its_bounds() -> None:
    tracker = learned(50)
    slow_down(tracker, 500)
    assert tracker.factor(CPU, 1) == 1.0
    slow_down(tracker, 0.001)
    assert tracker.factor(CPU, 1) == 0.05


@pytest.mark.parametrize("speed", [0.0, -1.0, float("nan"), float("inf")])
def test_what_is_no_speed_is_no_measurement(speed: float) -> None:
    tracker = learned(50)
    slow_down(tracker, speed)
    assert tracker.measured(CPU, 1) is None


def test_an_old_measurement_says_nothing_about_now() -> None:
    tracker = learned(50)
    slow_down(tracker, 20, now=10)
    assert tracker.factor(CPU, 300) == pytest.approx(0.4)
    assert tracker.factor(CPU, 320) == 1.0


def test_each_bucket_has_its_own_baseline() -> None:
    tracker = learned(50)
    four = speed_key("qwen3-8b:Q4_K_M", "ngl28", "ac", streams=4, tokens=500)
    for _ in range(8):
        see(tracker, four, 18, "cool", 1)
    assert (usual(tracker), usual(tracker, four)) == (50, 18)
    assert tracker.factor(CPU, 1) == 1.0


def test_what_is_slow_under_heat_does_not_become_usual() -> None:
    tracker = learned(50)
    for _ in range(200):
        see(tracker, KEY, 25, "throttled", 1)
        see(tracker, KEY, 25, "warm", 1)
    assert usual(tracker) == 50
    assert tracker.factor(CPU, 1) == pytest.approx(0.5)


def test_a_machine_that_is_always_warm_gets_a_baseline_too() -> None:
    tracker = SpeedTracker()
    for _ in range(5):
        see(tracker, KEY, 40, "warm", 0)
    for _ in range(10):
        slow_down(tracker, 20)
    assert usual(tracker) == 40
    assert tracker.factor(CPU, 1) == pytest.approx(0.5)


def test_the_baseline_follows_a_change_that_is_not_heat() -> None:
    tracker = learned(50)
    for _ in range(64):
        see(tracker, KEY, 70, "cool", 1)
    assert usual(tracker) == 70


def test_the_number_of_keys_is_bounded() -> None:
    tracker = learned(50)
    for number in range(400):
        see(tracker, speed_key(f"m{number}", "p", "ac", streams=1, tokens=1), 10, "cool", 0)
    assert tracker.baseline(KEY) is None


@pytest.mark.parametrize(
    ("streams", "tokens", "buckets"),
    [(1, 0, (1, 1024)), (2, 1024, (2, 1024)), (3, 1025, (4, 4096)), (4, 5000, (4, 16384))],
)
def test_buckets(streams: int, tokens: int, buckets: tuple[int, int]) -> None:
    key = speed_key("m", "p", "ac", streams=streams, tokens=tokens)
    assert (key.concurrency, key.context) == buckets


def test_power_sources() -> None:
    assert [power_source(plugged) for plugged in (True, False, None)] == ["ac", "battery", "unknown"]


def test_speeds_that_usually_differ_widely_prove_less() -> None:
    """Median 50, the distances to it are 0 5 5 10 10: half of them at most 5, so sigma is 7.4 of 50."""
    tracker = SpeedTracker()
    for speed in (40, 45, 50, 55, 60):
        see(tracker, KEY, speed, "cool", 0)
    found = tracker.baseline(KEY)
    assert found is not None
    assert (found.tokens_per_second, found.n, found.cool) == (50, 5, True)
    assert found.spread == pytest.approx(1.4826 * 5 / 50)
    slow_down(tracker, 37)
    measured = tracker.measured(CPU, 1)
    assert measured is not None
    assert measured.ratio == pytest.approx(0.74)
    assert not measured.is_slow(0.8)  # two sigma below the median is 0.70
    slow_down(tracker, 34)
    slower = tracker.measured(CPU, 1)
    assert slower is not None
    assert slower.is_slow(0.8)


def test_a_place_knows_only_what_ran_there() -> None:
    tracker = learned(50)
    for _ in range(3):
        tracker.observe(KEY, 20, "warm", {"GPU-1"}, 1)
    assert tracker.factor("GPU-1", 1) == pytest.approx(0.4)
    assert (tracker.factor(CPU, 1), tracker.measured(CPU, 1)) == (1.0, None)


def test_a_machine_that_starts_hot_is_held_against_the_speeds_of_earlier_days() -> None:
    tracker = SpeedTracker()
    tracker.seed(KEY, [50.0, 0.0, 52.0, 48.0, float("nan"), 50.0, 50.0])
    assert usual(tracker) == 50
    assert tracker.measured(CPU, 0) is None
    slow_down(tracker, 25)
    assert tracker.factor(CPU, 1) == pytest.approx(0.5)


def test_the_number_of_places_is_bounded() -> None:
    tracker = learned(50)
    slow_down(tracker, 25)
    for number in range(100):
        tracker.observe(KEY, 25, "warm", {f"GPU-{number}"}, 1)
    assert tracker.measured(CPU, 1) is None
