"""Seconds until the threshold, from headrooms of the last half minute."""

from __future__ import annotations

import pytest

from appliance.monitor.governor import trend
from appliance.monitor.governor.trend import Trend


def after(headrooms: list[float | None], every_s: float = 1.0) -> Trend:
    seen = Trend()
    for number, headroom in enumerate(headrooms):
        seen = trend.look(seen, headroom, number * every_s)
    return seen


@pytest.mark.parametrize("every_s", [1.0, 5.0])
def test_a_steady_rise_reaches_the_threshold_when_the_line_does(every_s: float) -> None:
    rising = after([40 - 0.5 * every_s * number for number in range(12)], every_s)
    left = 40 - 0.5 * every_s * 11
    assert trend.rate(rising) == pytest.approx(0.5)
    assert trend.slowdown_in_s(rising) == pytest.approx(left / 0.5)


def test_whole_degrees_tell_a_slow_rise_well_enough() -> None:
    rising = after([float(30 - second // 4) for second in range(30)])
    assert trend.rate(rising) == pytest.approx(0.25, rel=0.15)


@pytest.mark.parametrize(
    "headrooms", [[20.0] * 30, [20.0, 21.0] * 15, [10.0 + second for second in range(30)]]
)
def test_what_does_not_rise_reaches_nothing(headrooms: list[float]) -> None:
    assert trend.slowdown_in_s(after([*headrooms])) is None


def test_what_has_turned_rises_no_more() -> None:
    up, down = [40.0 - 2 * second for second in range(18)], [6.0 + 2 * second for second in range(10)]
    assert trend.slowdown_in_s(after([*up])) == pytest.approx(3.0)
    assert trend.slowdown_in_s(after([*up, *down])) is None


def test_few_samples_say_nothing_and_none_is_no_sample() -> None:
    assert trend.slowdown_in_s(after([10.0, 8.0, 6.0])) is None
    assert trend.slowdown_in_s(after([10.0, None, None, None, 8.0, None, None, None, None, 6.0])) is None
    assert trend.slowdown_in_s(Trend()) is None


def test_at_the_threshold_there_is_nothing_to_look_ahead_to() -> None:
    assert trend.slowdown_in_s(after([20.0 - 2 * at for at in range(11)])) is None


@pytest.mark.parametrize("degrees", [(4.0, -1.0), (6.0, 2.0)])
def test_what_moves_up_and_down_near_its_threshold_is_at_its_usual_temperature(
    degrees: tuple[float, float],
) -> None:
    moving = [degrees[at // 3 % 2] for at in range(60)]
    seen = Trend()
    for number, headroom in enumerate(moving):
        seen = trend.look(seen, headroom, float(number))
        in_s = trend.slowdown_in_s(seen)
        assert in_s is None or in_s > 20


def test_old_samples_and_a_clock_that_went_back_are_dropped() -> None:
    seen = after([40.0 - second for second in range(10)])
    assert trend.look(seen, 30.0, 100.0).points == ((100.0, 30.0),)
    assert trend.look(seen, 30.0, -5.0).points == ((-5.0, 30.0),)
