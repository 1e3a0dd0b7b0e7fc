"""The choice: never slower than the engine's defaults, better by more than chance, else what is planned."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from appliance.operations.tuning.candidates import ENGINE, PLAN, Candidate
from appliance.operations.tuning.choice import choose, gained, noise_of, promising, ratios
from appliance.operations.tuning.knobs import Knobs
from appliance.operations.tuning.measuring import Speeds

BASE = Speeds(100.0, 20.0, 60.0)
OWN = Knobs(8, None, 2_048, 512, "auto")


def times(prefill: float, decode: float = 1.0, many: float | None = 1.0) -> Speeds:
    many = None if many is None or BASE.many is None else BASE.many * many
    return Speeds(BASE.prefill * prefill, BASE.decode * decode, many)


def rounds(**others: Speeds) -> list[Mapping[str, Speeds]]:
    """Three rounds in which nothing changes."""
    return [{ENGINE: BASE, PLAN: times(1.0), **others}] * 3


def test_a_clear_gain_is_taken_and_said() -> None:
    verdict = choose(rounds(a=times(1.2), b=times(1.1)))
    assert verdict.name == "a"
    assert "prefill x1.20" in verdict.why


def test_a_gain_within_chance_changes_nothing() -> None:
    assert choose(rounds(a=times(1.02, 1.02, 1.02))).name == PLAN


def test_what_loses_anywhere_is_out_whatever_it_wins() -> None:
    assert choose(rounds(a=times(3.0, 0.9))).name == PLAN
    assert choose(rounds(a=times(3.0, 1.0, 0.9))).name == PLAN


def test_a_plan_slower_than_the_engine_gives_way_to_its_defaults() -> None:
    verdict = choose([{ENGINE: BASE, PLAN: times(0.8)}] * 3)
    assert verdict.name == ENGINE
    assert "slower" in verdict.why


def test_one_lucky_round_is_no_gain() -> None:
    steady, lucky = rounds(a=times(0.99)), rounds(a=times(1.5))
    assert choose([lucky[0], lucky[1], steady[2]]).name == PLAN


def test_a_machine_that_gets_slower_treats_all_alike() -> None:
    """Thermal drift: every round is a third slower than the one before."""
    drifting = [
        {ENGINE: slowed(BASE, n), PLAN: slowed(times(1.0), n), "a": slowed(times(1.6, 1.6, 1.6), n)}
        for n in range(3)
    ]
    assert abs(ratios(drifting)["a"].prefill - 1.6) < 1e-9
    assert choose(drifting).name == "a"


def test_figures_that_jump_about_make_no_gain() -> None:
    """Another program comes and goes: what is planned is a fifth better, then a fifth worse than the same."""
    jumping = [{ENGINE: BASE, PLAN: times(share), "a": times(1.1, 1.1, 1.1)} for share in (1.2, 0.8, 1.0)]
    assert noise_of(jumping) > 0.15
    assert choose(jumping).name == PLAN


def slowed(speeds: Speeds, n: int) -> Speeds:
    factor = 0.67**n
    return Speeds(speeds.prefill * factor, speeds.decode * factor, (speeds.many or 0) * factor)


def test_with_one_slot_the_other_measures_decide() -> None:
    base = Speeds(100.0, 20.0)
    verdict = choose([{ENGINE: base, PLAN: base, "a": Speeds(130.0, 20.0)}] * 3)
    assert verdict.name == "a"
    assert verdict.ratios["a"].many is None


def test_what_was_given_up_after_the_first_round_is_not_kept() -> None:
    first = {ENGINE: BASE, PLAN: times(1.0), "a": times(2.0)}
    assert choose([first, {ENGINE: BASE, PLAN: times(1.0)}]).name == PLAN


def test_only_what_may_win_goes_on() -> None:
    tried = [Candidate(ENGINE, OWN), Candidate(PLAN, OWN)]
    tried += [Candidate(name, OWN, name) for name in "abcde"]
    first = {ENGINE: BASE, PLAN: times(1.0)}
    first |= {"a": times(0.9), "b": times(1.1), "c": times(1.0), "d": times(1.2), "e": times(1.3)}
    assert [one.name for one in promising(first, tried)] == [ENGINE, PLAN, "b", "d", "e"]


def test_the_best_of_each_kind_is_a_gain() -> None:
    axes = {"s": "size", "l": "size", "f": "flash", "t": "threads"}
    tried = [Candidate(ENGINE, OWN), Candidate(PLAN, OWN)]
    tried += [Candidate(name, OWN, axis) for name, axis in axes.items()]
    first = {
        ENGINE: BASE,
        PLAN: times(1.0),
        "s": times(1.2),
        "l": times(1.3),
        "f": times(1.5),
        "t": times(1.0),
    }
    assert {one.name for one in gained(first, tried)} == {"l", "f"}


positive = st.floats(0.1, 10_000)
speeds = st.builds(Speeds, positive, positive, positive)


@given(
    st.lists(
        st.fixed_dictionaries({ENGINE: speeds, PLAN: speeds, "a": speeds, "b": speeds}),
        min_size=1,
        max_size=4,
    )
)
def test_what_is_kept_is_never_slower_than_the_engine_by_more_than_the_noise(
    found: list[Mapping[str, Speeds]],
) -> None:
    verdict = choose(found)
    assert min(verdict.ratios[verdict.name].all) >= 1 - verdict.noise
    assert verdict.ratios[ENGINE].all == (1.0, 1.0, 1.0)
    better = [one for one in (verdict.ratios[PLAN],) if min(one.all) >= 1 - verdict.noise]
    if verdict.name not in (PLAN, ENGINE) and better:
        assert verdict.ratios[verdict.name].score > better[0].score
