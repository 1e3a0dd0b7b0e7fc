"""The thermal rule as tables: a trace of samples, one a second, and the states it leads to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.monitor.governor.baseline import SpeedTracker, speed_key
from appliance.monitor.governor.states import Governor, Reading, Rule, ThermalState, step, worst

RULE = Rule(slow=0.8, throttle_margin=2.0, hold=5.0, dwell=60.0)
SW_THERMAL, HW_THERMAL, HW_SLOWDOWN, POWER_CAP, BRAKE, IDLE = 0x20, 0x40, 0x8, 0x4, 0x80, 0x1
SLOWDOWN_AT = 94.0


@dataclass(frozen=True)
class At:
    """One second: a temperature, bits and a speed ratio; None is not readable."""

    celsius: float | None
    reasons: int | None = 0
    ratio: float | None = None


def reading(at: At) -> Reading:
    return Reading(None if at.celsius is None else SLOWDOWN_AT - at.celsius, None, at.reasons)


def states(trace: Iterable[At], rule: Rule = RULE) -> list[ThermalState]:
    governor, found = Governor(), []
    for second, at in enumerate(trace):
        governor = step(governor, reading(at), float(second), at.ratio, rule)
        found.append(governor.state)
    return found


def course(trace: Iterable[At], rule: Rule = RULE) -> list[tuple[ThermalState, int]]:
    """Each state and how many seconds it lasted."""
    return [(state, len(list(group))) for state, group in groupby(states(trace, rule))]


def test_before_the_first_reading_all_is_unknown() -> None:
    assert step(Governor(), None, 0, None, RULE).state == "unknown"
    assert step(Governor(), Reading(), 0, 0.1, RULE).state == "unknown"


def test_ramp_becomes_warm_then_critical_then_cool_after_the_dwell() -> None:
    up = [At(celsius) for celsius in range(85, 94)]
    at_limit = [At(95)] * 10
    down = [At(80)] * 70
    assert course([*up, *at_limit, *down]) == [("cool", 7), ("warm", 7), ("critical", 65), ("cool", 10)]


def test_a_spike_is_shown_and_trips_nothing() -> None:
    assert course([At(60), At(99), *[At(60)] * 8]) == [("cool", 1), ("warm", 5), ("cool", 4)]


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
    trace = [At(93, ratio=1.0), *[At(93, ratio=0.6)] * 3, At(93, ratio=0.82), At(93, ratio=0.86)]
    assert states(trace) == ["warm", "throttled", "throttled", "throttled", "throttled", "warm"]


def test_slow_decode_without_heat_is_not_throttled() -> None:
    assert set(states([At(60, ratio=0.3)] * 100)) == {"cool"}


def test_throttled_ends_when_the_heat_is_gone() -> None:
    trace = [*[At(93, ratio=0.5)] * 3, *[At(70, ratio=0.5)] * 5]
    assert states(trace) == ["throttled"] * 7 + ["cool"]


def test_a_speed_that_is_no_longer_known_proves_no_throttling() -> None:
    assert states([At(93, ratio=0.5), At(93, ratio=None)]) == ["throttled", "warm"]


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
    assert states([At(60), lost, lost]) == ["cool", "unknown", "unknown"]
    assert states([At(93), lost, At(93)]) == ["warm", "unknown", "warm"]


def test_sensor_loss_keeps_throttled_until_the_speed_is_back() -> None:
    slow, blind_slow, blind_fast = At(93, ratio=0.5), At(None, None, 0.5), At(None, None, 0.95)
    blind = At(None, None, None)
    trace = [slow, *[blind_slow] * 500, *[blind] * 500, blind_fast]
    assert course(trace) == [("throttled", 1001), ("unknown", 1)]


def test_sensor_loss_keeps_critical_and_restarts_its_dwell() -> None:
    trace = [*[At(95)] * 6, *[At(80)] * 59, At(None, None), *[At(80)] * 60]
    assert states(trace)[-1] == "critical"
    assert states([*[At(95)] * 6, *[At(None, None, 1.0)] * 1000])[-1] == "critical"


def test_sensor_loss_breaks_the_hold() -> None:
    assert "critical" not in states([At(95), At(95), At(95), At(None, None)] * 20)


def test_a_temperature_that_vanishes_clears_nothing_though_the_bits_are_still_read() -> None:
    assert states([At(93, 0, 0.5), *[At(None, 0, 0.5)] * 100])[-1] == "throttled"
    assert states([*[At(95, 0)] * 6, *[At(None, 0)] * 100])[-1] == "critical"


def test_bits_that_vanish_clear_critical_only_far_below_the_threshold() -> None:
    assert states([*[At(95, 0)] * 6, *[At(88, None)] * 100])[-1] == "critical"
    assert states([*[At(95, 0)] * 6, *[At(84, None)] * 100])[-1] == "warm"


def test_a_device_that_never_tells_its_temperature_is_judged_by_its_bits() -> None:
    trace = [*[At(None, SW_THERMAL, 0.5)] * 3, *[At(None, 0, 0.5)] * 5]
    assert states(trace) == [
        "cool",
        "cool",
        "throttled",
        "throttled",
        "throttled",
        "throttled",
        "throttled",
        "cool",
    ]


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


_SAMPLES = st.builds(
    At,
    celsius=st.none() | st.floats(40, 110),
    reasons=st.none() | st.sampled_from([0, SW_THERMAL, HW_THERMAL, HW_SLOWDOWN, POWER_CAP, BRAKE]),
    ratio=st.none() | st.floats(0.05, 1.5),
)
_RUNS = st.lists(st.tuples(_SAMPLES, st.integers(1, 80)), max_size=12)


@given(_RUNS)
def test_critical_lasts_at_least_the_dwell_and_begins_after_the_hold(runs: list[tuple[At, int]]) -> None:
    trace = [at for at, seconds in runs for _ in range(seconds)]
    found = course(trace)
    for position, (state, seconds) in enumerate(found):
        if state == "critical" and position < len(found) - 1:
            assert seconds >= RULE.dwell
    first = next((i for i, state in enumerate(states(trace)) if state == "critical"), None)
    if first is not None:
        held = trace[max(0, first - int(RULE.hold)) : first + 1]
        assert len(held) == int(RULE.hold) + 1
        assert all(at.celsius is not None and at.celsius >= SLOWDOWN_AT for at in held)


@given(_RUNS)
def test_throttled_is_entered_only_with_a_sign_of_heat_and_a_slow_decode(runs: list[tuple[At, int]]) -> None:
    trace = [at for at, seconds in runs for _ in range(seconds)]
    before: ThermalState = "unknown"
    for index, state in enumerate(states(trace)):
        if state == "throttled" != before:
            ratio = trace[index].ratio
            assert ratio is not None
            assert ratio < RULE.slow
            signs = [at for at in trace[: index + 1] if (at.reasons or 0) & 0x68 or (at.celsius or 0) >= 92]
            assert signs
        before = state


@given(_RUNS)
def test_unknown_samples_never_make_a_state_worse(runs: list[tuple[At, int]]) -> None:
    governor = Governor()
    for second, at in enumerate(at for at, seconds in runs for _ in range(seconds)):
        blind = step(governor, None, float(second), at.ratio, RULE)
        assert worst([blind.state, governor.state, "unknown"]) in (governor.state, "unknown")
        governor = step(governor, reading(at), float(second), at.ratio, RULE)


_KEY = speed_key("m", "p", "ac", streams=1, tokens=100)


@given(
    st.lists(st.floats(1, 100), min_size=5, max_size=20),
    st.lists(
        st.tuples(st.floats(0.5, 100), st.floats(0, 1), st.sampled_from(["warm", "throttled"])), max_size=20
    ),
)
def test_slower_decode_under_heat_never_raises_the_factor(
    usual: list[float], under_heat: list[tuple[float, float, ThermalState]]
) -> None:
    one, slower = SpeedTracker(), SpeedTracker()
    for speed in usual:
        one.observe(_KEY, speed, "cool", 0)
        slower.observe(_KEY, speed, "cool", 0)
    for speed, share, state in under_heat:
        one.observe(_KEY, speed, state, 1)
        slower.observe(_KEY, max(1e-6, speed * share), state, 1)
        assert 0 < slower.factor(1) <= one.factor(1) <= 1
