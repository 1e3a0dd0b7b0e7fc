"""The thermal rule as tables: a trace of samples, one a second, and the states it leads to."""

from __future__ import annotations

import pytest

from appliance.monitor.governor import Reading
from appliance.monitor.governor.baseline import Measured
from appliance.monitor.governor.states import Governor, ends_in_s, step, worst
from tests.monitor.governor.traces import (
    BRAKE,
    HW_SLOWDOWN,
    HW_THERMAL,
    IDLE,
    POWER_CAP,
    RULE,
    SLOWDOWN_AT,
    SW_THERMAL,
    At,
    course,
    measured,
    states,
)


def test_before_the_first_reading_all_is_unknown() -> None:
    assert step(Governor(), None, 0, None, RULE).state == "unknown"
    assert step(Governor(), Reading(), 0, measured(0.1), RULE).state == "unknown"


def test_ramp_becomes_warm_then_critical_then_cool_after_the_dwell() -> None:
    up = [At(celsius) for celsius in range(85, 94)]
    at_limit = [At(95)] * 10
    down = [At(80)] * 70
    assert course([*up, *at_limit, *down]) == [("cool", 7), ("warm", 7), ("critical", 65), ("cool", 10)]


def test_a_spike_is_shown_and_trips_nothing() -> None:
    assert course([At(60), At(99), *[At(60)] * 68]) == [("cool", 1), ("warm", 60), ("cool", 9)]


def test_critical_needs_an_unbroken_hold() -> None:
    sawtooth = [At(95), At(95), At(95), At(95), At(93)] * 10
    assert "critical" not in states(sawtooth)


def test_critical_is_entered_at_the_hold_exactly_and_at_the_threshold_exactly() -> None:
    assert states([At(SLOWDOWN_AT)] * 6) == ["warm"] * 5 + ["critical"]
    assert "critical" not in states([At(SLOWDOWN_AT - 0.1)] * 100)


def test_critical_starts_the_dwell_again_with_each_sign_of_heat() -> None:
    trace = [*[At(95)] * 6, *[At(80)] * 59, At(93), *[At(80)] * 60]
    assert states(trace)[-1] == "critical"
    assert states([*trace, At(80)])[-1] == "cool"


def test_critical_counts_at_usual_speed_too() -> None:
    assert states([At(95, ratio=1.0)] * 6)[-1] == "critical"


def test_a_hot_start_is_warm_at_once_and_critical_after_the_hold() -> None:
    assert course([At(96)] * 8) == [("warm", 5), ("critical", 3)]


def test_heat_at_usual_speed_is_warm_and_nothing_more() -> None:
    assert set(states([At(93, SW_THERMAL, ratio=0.9)] * 300)) == {"warm"}


def test_heat_with_slow_decode_is_throttled_and_ends_when_the_speed_is_back() -> None:
    trace = [At(93, ratio=1.0), *[At(93, ratio=0.6)] * 70, At(93, ratio=0.82), *[At(93, ratio=0.86)] * 3]
    assert course(trace) == [("warm", 1), ("throttled", 71), ("warm", 3)]


def test_throttled_lasts_for_the_dwell_though_the_speed_is_back_at_once() -> None:
    assert course([At(93, ratio=0.6), *[At(93, ratio=1.0)] * 70]) == [("throttled", 60), ("warm", 11)]


def test_slow_decode_without_heat_is_not_throttled() -> None:
    assert set(states([At(60, ratio=0.3)] * 100)) == {"cool"}


def test_throttled_ends_when_the_heat_is_gone() -> None:
    trace = [*[At(93, ratio=0.5)] * 70, *[At(70, ratio=0.5)] * 6]
    assert course(trace) == [("throttled", 74), ("cool", 2)]


def test_a_speed_that_is_no_longer_known_proves_no_throttling() -> None:
    assert course([*[At(93, ratio=0.5)] * 60, At(93, ratio=None)]) == [("throttled", 60), ("warm", 1)]


@pytest.mark.parametrize("bits", [SW_THERMAL, HW_THERMAL, SW_THERMAL | POWER_CAP, HW_SLOWDOWN])
def test_bits_count_from_the_third_of_five_samples(bits: int) -> None:
    assert states([At(60, bits)] * 3) == ["cool", "cool", "warm"]
    spread = [At(60, bits), At(60), At(60, bits), At(60), At(60, bits)]
    assert states(spread)[-1] == "warm"


@pytest.mark.parametrize("bits", [SW_THERMAL, HW_SLOWDOWN])
def test_two_of_five_samples_prove_nothing(bits: int) -> None:
    assert set(states([At(60, bits), At(60), At(60), At(60, bits), At(60)] * 20)) == {"cool"}


@pytest.mark.parametrize(
    "bits", [POWER_CAP, IDLE, BRAKE, HW_SLOWDOWN | BRAKE, POWER_CAP | BRAKE, 0x100, 1 << 40]
)
def test_power_and_other_bits_are_never_heat(bits: int) -> None:
    assert set(states([At(60, bits, ratio=0.3)] * 50)) == {"cool"}


def test_a_laptop_that_always_reports_throttling_stays_warm() -> None:
    lying = [At(55, SW_THERMAL | HW_THERMAL | HW_SLOWDOWN, ratio=0.97)] * 1000
    assert course(lying) == [("cool", 2), ("warm", 998)]


def test_a_laptop_that_always_reports_throttling_comes_back_from_critical() -> None:
    trace = [*[At(95, SW_THERMAL)] * 6, *[At(55, SW_THERMAL)] * 62]
    assert course(trace) == [("warm", 5), ("critical", 61), ("warm", 2)]


def test_sensor_loss_trips_nothing() -> None:
    lost = At(None, None, ratio=0.1)
    assert course([At(60), *[lost] * 7]) == [("cool", 6), ("unknown", 2)]
    assert course([At(93), *[lost] * 7, At(93)]) == [("warm", 6), ("unknown", 2), ("warm", 1)]


def test_one_sample_that_could_not_be_read_is_not_shown() -> None:
    assert set(states([At(60), At(None, None)] * 50)) == {"cool"}


def test_a_sensor_that_comes_and_goes_does_not_make_warm_end_sooner() -> None:
    lost = [At(None, None)] * 7
    trace = [At(93), *[*lost, At(60)] * 12]
    shown = [state for state in states(trace) if state != "unknown"]
    assert shown.index("cool") == shown.count("warm")
    assert states(trace)[: int(RULE.dwell)].count("cool") == 0


def test_sensor_loss_keeps_throttled_until_the_speed_is_back() -> None:
    slow, blind_slow, blind_fast = At(93, ratio=0.5), At(None, None, 0.5), At(None, None, 0.95)
    blind = At(None, None, None)
    trace = [slow, *[blind_slow] * 500, *[blind] * 500, blind_fast]
    assert course(trace) == [("throttled", 1001), ("unknown", 1)]


def test_sensor_loss_keeps_critical_and_restarts_its_dwell() -> None:
    trace = [*[At(95)] * 6, *[At(80)] * 59, At(None, None), *[At(80)] * 60]
    assert states(trace)[-1] == "critical"
    assert states([*[At(95)] * 6, *[At(None, None, 1.0)] * 500])[-1] == "critical"


def test_critical_that_nobody_can_read_for_ten_dwells_is_throttled_until_speed_says_otherwise() -> None:
    """A card that was too hot and fell off the bus must not end all local work for ever."""
    lost = At(None, None, None)
    trace = [*[At(95)] * 6, *[lost] * 700, *[At(None, None, 0.5)] * 100, *[At(None, None, 1.0)] * 3]
    assert course(trace) == [("warm", 5), ("critical", 601), ("throttled", 200), ("unknown", 3)]
    assert states([*[At(95)] * 6, *[lost] * 700, *[At(95)] * 6])[-1] == "critical"


def test_when_critical_ends_at_the_earliest() -> None:
    governor = Governor()
    for second, celsius in enumerate([95] * 6 + [80] * 20):
        governor = step(governor, Reading(SLOWDOWN_AT - celsius), float(second), None, RULE)
        if second == 5:
            assert ends_in_s(governor, 5.0, RULE) == RULE.dwell
    assert ends_in_s(governor, 25.0, RULE) == RULE.dwell - 19
    blind = step(governor, None, 26.0, None, RULE)
    assert ends_in_s(blind, 30.0, RULE) == 10 * RULE.dwell - 4
    assert ends_in_s(Governor(), 0.0, RULE) is None


def test_sensor_loss_breaks_the_hold() -> None:
    assert "critical" not in states([At(95), At(95), At(95), At(None, None)] * 20)


def test_a_temperature_that_vanishes_clears_nothing_though_the_bits_are_still_read() -> None:
    assert states([At(93, 0, 0.5), *[At(None, 0, 0.5)] * 100])[-1] == "throttled"
    assert states([*[At(95, 0)] * 6, *[At(None, 0)] * 100])[-1] == "critical"


def test_bits_that_vanish_clear_critical_only_far_below_the_threshold() -> None:
    assert states([*[At(95, 0)] * 6, *[At(88, None)] * 100])[-1] == "critical"
    assert states([*[At(95, 0)] * 6, *[At(84, None)] * 100])[-1] == "warm"


def test_a_device_that_never_tells_its_temperature_is_judged_by_its_bits() -> None:
    trace = [*[At(None, SW_THERMAL, 0.5)] * 3, *[At(None, 0, 0.5)] * 62]
    assert course(trace) == [("cool", 2), ("throttled", 60), ("cool", 3)]


def test_the_drivers_margin_can_warm_a_device_and_never_makes_it_critical() -> None:
    governor = Governor()
    for second in range(100):
        governor = step(governor, Reading(margin=-3.0), float(second), None, RULE)
    assert governor.state == "warm"


def test_a_machine_that_slept_has_proven_nothing_in_between() -> None:
    governor = step(Governor(), Reading(headroom=-1), 0.0, None, RULE)
    governor = step(governor, Reading(headroom=-1), 3600.0, None, RULE)
    assert governor.state == "warm"


def test_the_worst_device_decides() -> None:
    assert worst(["cool", "warm", "throttled"]) == "throttled"
    assert worst(["critical", "unknown"]) == "critical"
    assert worst(["cool", "unknown"]) == "unknown"
    assert worst([]) == "unknown"


def test_a_slow_speed_that_chance_explains_is_not_throttled() -> None:
    spread = Measured(0.75, 0.15)  # two sigma below usual is 0.70
    assert step(Governor(), Reading(1.0), 0.0, spread, RULE).state == "warm"
    assert step(Governor(), Reading(1.0), 0.0, Measured(0.69, 0.15), RULE).state == "throttled"


def test_a_cpu_at_its_limit_is_warm_and_never_critical() -> None:
    governor = Governor()
    for second in range(300):
        governor = step(governor, Reading(-2.0, alarms=False), float(second), measured(0.95), RULE)
    assert governor.state == "warm"


def test_thermal_counters_see_what_happens_between_the_samples() -> None:
    """No bit is ever seen set; the counter says that heat held the clocks down for a third of each second."""
    governor, found = Governor(), []
    for second in range(30):
        slowed = Reading(20.0, reasons=0, slowed_ns=int(second * 0.33e9))
        governor = step(governor, slowed, float(second), measured(0.5), RULE)
        found.append(governor.state)
    assert found[:2] == ["cool", "cool"]  # one look and one second prove nothing
    assert set(found[2:]) == {"throttled"}
    assert governor.signs.now == ("counters",)


@pytest.mark.parametrize("share", [0.0, 0.19])
def test_counters_that_hardly_run_are_no_sign(share: float) -> None:
    governor = Governor()
    for second in range(100):
        slowed = Reading(20.0, slowed_ns=int(second * share * 1e9))
        governor = step(governor, slowed, float(second), measured(0.3), RULE)
        assert governor.state == "cool"


def test_a_counter_that_begins_anew_is_no_sign() -> None:
    governor = step(Governor(), Reading(20.0, slowed_ns=9_000_000_000), 0.0, None, RULE)
    for second in range(1, 20):
        governor = step(governor, Reading(20.0, slowed_ns=0), float(second), measured(0.3), RULE)
        assert governor.state == "cool"


def test_counters_that_run_at_the_pace_of_an_idle_machine_are_seen_too() -> None:
    governor = Governor()
    for second in range(0, 30, 5):
        governor = step(governor, Reading(20.0, slowed_ns=second * 500_000_000), float(second), None, RULE)
    assert governor.state == "warm"
