"""What holds for every trace."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from appliance.monitor.governor import CPU, PowerSource, SpeedTracker, ThermalState, speed_key
from appliance.monitor.governor.power import Power
from appliance.monitor.governor.power import step as step_power
from appliance.monitor.governor.states import SEVERITY, Governor, step, worst
from tests.monitor.governor.traces import (
    BRAKE,
    HW_SLOWDOWN,
    HW_THERMAL,
    POWER_CAP,
    RULE,
    SLOWDOWN_AT,
    SW_THERMAL,
    At,
    course,
    measured,
    reading,
    states,
)

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
        blind = step(governor, None, float(second), measured(at.ratio), RULE)
        assert worst([blind.state, governor.state, "unknown"]) in (governor.state, "unknown")
        governor = step(governor, reading(at), float(second), measured(at.ratio), RULE)


@given(_RUNS)
def test_no_state_flaps_faster_than_the_dwell(runs: list[tuple[At, int]]) -> None:
    """A state that was entered lasts for the dwell unless it gets worse; sensors that are gone meanwhile
    neither lengthen nor shorten that, so whoever comes back to a state does so after the dwell.
    """
    trace = [at for at, seconds in runs for _ in range(seconds)]
    known = [(second, state) for second, state in enumerate(states(trace)) if state != "unknown"]
    changes = [(second, before, after) for (_, before), (second, after) in pairwise(known) if before != after]
    entered = known[0][0] if known else 0
    for second, before, after in changes:
        if SEVERITY[after] < SEVERITY[before]:
            assert second - entered >= RULE.dwell
        entered = second
    last_entry: dict[ThermalState, int] = {}
    for second, _, after in changes:
        assert second - last_entry.get(after, -10_000) >= RULE.dwell
        last_entry[after] = second


_KEY = speed_key("m", "p", "ac", streams=1, tokens=100)
_SPEED = st.floats(0.5, 100)


@given(
    st.lists(st.floats(1, 100), min_size=5, max_size=20),
    st.lists(st.tuples(_SPEED, st.floats(0, 1), st.sampled_from(["warm", "throttled"])), max_size=20),
)
def test_slower_decode_under_heat_never_raises_the_factor(
    usual: list[float], under_heat: list[tuple[float, float, ThermalState]]
) -> None:
    one, slower = SpeedTracker(), SpeedTracker()
    for speed in usual:
        one.observe(_KEY, speed, "cool", {CPU}, 0)
        slower.observe(_KEY, speed, "cool", {CPU}, 0)
    for speed, share, state in under_heat:
        one.observe(_KEY, speed, state, {CPU}, 1)
        slower.observe(_KEY, max(1e-6, speed * share), state, {CPU}, 1)
        assert 0 < slower.factor(CPU, 1) <= one.factor(CPU, 1) <= 1


@given(
    st.lists(_SPEED, max_size=12), _SPEED, st.floats(0, 1), st.sampled_from(["warm", "throttled", "critical"])
)
def test_the_last_speed_under_heat_never_raises_the_factor_by_being_slower(
    before: list[float], last: float, share: float, state: ThermalState
) -> None:
    """Also where speeds under heat stand in for a baseline that was never measured while cool."""
    one, slower = SpeedTracker(), SpeedTracker()
    for speed in before:
        one.observe(_KEY, speed, "warm", {CPU}, 0)
        slower.observe(_KEY, speed, "warm", {CPU}, 0)
    one.observe(_KEY, last, state, {CPU}, 1)
    slower.observe(_KEY, max(1e-6, last * share), state, {CPU}, 1)
    assert slower.factor(CPU, 1) <= one.factor(CPU, 1)


@given(st.lists(st.tuples(st.sampled_from(["ac", "battery", "unknown"]), st.integers(1, 9)), max_size=20))
def test_a_power_source_counts_only_when_it_was_seen_for_the_hold(
    seen: list[tuple[PowerSource, int]],
) -> None:
    power, looks = Power(), [source for source, seconds in seen for _ in range(seconds)]
    for second, source in enumerate(looks):
        before, power = power, step_power(power, source, float(second), 5.0)
        if power.source != before.source and before.source != "unknown":
            told = [one for one in looks[: second + 1] if one != "unknown"]
            assert set(told[-2:]) == {power.source}
            assert second - power_began(looks, second, power.source) >= 5
        assert power.source in ("unknown", *looks[: second + 1])


def power_began(looks: list[PowerSource], second: int, source: PowerSource) -> int:
    """Since when nothing but this source, or nothing at all, was seen."""
    while second > 0 and looks[second - 1] in (source, "unknown"):
        second -= 1
    return second
