"""Usual speed, measured speed and the factor between them."""

from __future__ import annotations

import pytest

from appliance.monitor import SpeedKey, SpeedTracker, power_source, speed_key

KEY = speed_key("qwen3-8b:Q4_K_M", "ngl28", "ac", streams=1, tokens=500)


def learned(speed: float = 50.0, key: SpeedKey = KEY) -> SpeedTracker:
    tracker = SpeedTracker()
    for _ in range(5):
        tracker.observe(key, speed, "cool", 0)
    return tracker


def slow_down(tracker: SpeedTracker, speed: float, now: float = 1.0, key: SpeedKey = KEY) -> None:
    for _ in range(3):
        tracker.observe(key, speed, "warm", now)


def test_there_is_no_baseline_before_five_samples() -> None:
    tracker = SpeedTracker()
    for _ in range(4):
        tracker.observe(KEY, 50, "cool", 0)
        assert tracker.baseline(KEY) is None
    tracker.observe(KEY, 50, "cool", 0)
    assert tracker.baseline(KEY) == 50
    assert tracker.ratio(0) is None
    assert tracker.factor(0) == 1.0


def test_the_factor_is_the_median_of_three_requests_over_the_baseline() -> None:
    tracker = learned(50)
    tracker.observe(KEY, 5, "warm", 1)
    tracker.observe(KEY, 30, "warm", 1)
    assert tracker.factor(1) == 1.0  # two are not enough
    tracker.observe(KEY, 40, "warm", 1)
    assert tracker.ratio(1) == pytest.approx(0.6)
    assert tracker.factor(1) == pytest.approx(0.6)


def test_the_factor_stays_within_its_bounds() -> None:
    tracker = learned(50)
    slow_down(tracker, 500)
    assert tracker.factor(1) == 1.0
    slow_down(tracker, 0.001)
    assert tracker.factor(1) == 0.05


@pytest.mark.parametrize("speed", [0.0, -1.0, float("nan"), float("inf")])
def test_what_is_no_speed_is_no_measurement(speed: float) -> None:
    tracker = learned(50)
    slow_down(tracker, speed)
    assert tracker.ratio(1) is None


def test_an_old_measurement_says_nothing_about_now() -> None:
    tracker = learned(50)
    slow_down(tracker, 20, now=10)
    assert tracker.factor(300) == pytest.approx(0.4)
    assert tracker.factor(320) == 1.0


def test_each_bucket_has_its_own_baseline() -> None:
    tracker = learned(50)
    four = speed_key("qwen3-8b:Q4_K_M", "ngl28", "ac", streams=4, tokens=500)
    for _ in range(8):
        tracker.observe(four, 18, "cool", 1)
    assert (tracker.baseline(KEY), tracker.baseline(four)) == (50, 18)
    assert tracker.factor(1) == 1.0


def test_what_is_slow_under_heat_does_not_become_usual() -> None:
    tracker = learned(50)
    for _ in range(200):
        tracker.observe(KEY, 25, "throttled", 1)
        tracker.observe(KEY, 25, "warm", 1)
    assert tracker.baseline(KEY) == 50
    assert tracker.factor(1) == pytest.approx(0.5)


def test_a_machine_that_is_always_warm_gets_a_baseline_too() -> None:
    tracker = SpeedTracker()
    for _ in range(5):
        tracker.observe(KEY, 40, "warm", 0)
    for _ in range(10):
        slow_down(tracker, 20)
    assert tracker.baseline(KEY) == 40
    assert tracker.factor(1) == pytest.approx(0.5)


def test_the_baseline_follows_a_change_that_is_not_heat() -> None:
    tracker = learned(50)
    for _ in range(64):
        tracker.observe(KEY, 70, "cool", 1)
    assert tracker.baseline(KEY) == 70


def test_the_number_of_keys_is_bounded() -> None:
    tracker = learned(50)
    for number in range(400):
        tracker.observe(speed_key(f"m{number}", "p", "ac", streams=1, tokens=1), 10, "cool", 0)
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
