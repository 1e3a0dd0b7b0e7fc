"""What is worth saving, what stays on the disk, which file goes where."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.engines.slots import Entry, Slot, cache_ram_mib, kept, placed, worth_saving
from appliance.engines.slots.suited import bytes_per_token
from appliance.planning import MemoryPlan
from appliance.units import GIB, MIB
from tests.engines.launches import plan

KEYS = ("a" * 32, "b" * 32)
NOW = 1_000_000.0

entries = st.lists(
    st.builds(
        Entry,
        key=st.sampled_from(KEYS),
        name=st.integers(0, 10**6).map(lambda n: f"{n:016x}.slot"),
        tokens=st.integers(1, 100_000),
        n_bytes=st.integers(0, 1_000),
        digest=st.just("0" * 32),
        saved_at=st.floats(0, NOW + 1_000),
        used_at=st.floats(0, NOW + 1_000),
    ),
    max_size=12,
    unique_by=lambda entry: entry.name,
)


@given(entries, st.integers(0, 4_000), st.floats(0, NOW), st.integers(0, 4))
def test_the_disk_keeps_no_more_than_it_may_and_drops_nothing_without_need(
    found: list[Entry], budget: int, age: float, slots: int
) -> None:
    done = kept(found, budget=budget, age_s=age, now=NOW, slots={KEYS[0]: slots})
    assert sum(entry.n_bytes for entry in done.stay) <= budget
    assert all(NOW - entry.saved_at <= age for entry in done.stay)
    assert len([entry for entry in done.stay if entry.key == KEYS[0]]) <= slots
    assert sorted((*done.stay, *(entry for entry, _ in done.go)), key=str) == sorted(found, key=str)
    for entry, why in done.go:
        newer = [one for one in done.stay if one.used_at >= entry.used_at]
        if "budget" in why:
            assert sum(one.n_bytes for one in newer) + entry.n_bytes > budget
        elif "slots" in why:
            assert len([one for one in newer if one.key == KEYS[0]]) == slots
        else:
            assert NOW - entry.saved_at > age


@given(entries, st.integers(0, 4_000), st.randoms())
def test_what_stays_does_not_depend_on_the_order_of_the_list(
    found: list[Entry], budget: int, random: Random
) -> None:
    mixed = list(found)
    random.shuffle(mixed)
    assert kept(mixed, budget=budget, age_s=NOW, now=NOW) == kept(found, budget=budget, age_s=NOW, now=NOW)


@given(entries, st.integers(1, 8))
def test_the_newest_goes_to_the_first_slot(found: list[Entry], slots: int) -> None:
    there = placed(found, slots)
    assert [slot for slot, _ in there] == list(range(min(slots, len(found))))
    times = [entry.used_at for _, entry in there]
    assert times == sorted(times, reverse=True)
    assert all(entry.used_at <= min(times) for entry in found if entry not in [one for _, one in there])


slot_lists = st.lists(
    st.builds(
        Slot, id=st.integers(0, 30), busy=st.booleans(), tokens=st.none() | st.integers(0, 5_000),
        task=st.none() | st.integers(0, 500),
    ),
    max_size=8, unique_by=lambda slot: slot.id,
)  # fmt: skip


@given(
    slot_lists, st.integers(1, 1_000), st.frozensets(st.integers(0, 30)), st.frozensets(st.integers(0, 30)),
    st.none() | st.floats(0.1, 100), st.integers(0, 100_000),
)  # fmt: skip
def test_only_what_may_and_fits_is_saved_and_the_rest_has_a_reason(
    found: list[Slot], least: int, private: frozenset[int], same: frozenset[int], per: float | None, room: int
) -> None:
    done = worth_saving(
        found, least_tokens=least, private=private, unchanged=same, bytes_per_token=per, room=room
    )
    for slot in done.save:
        assert slot.id not in private | same
        assert not slot.busy
        assert (slot.tokens or 0) >= least
    assert sum(int((slot.tokens or 0) * (per or 0)) for slot in done.save) <= room
    assert {slot.id for slot in done.save} | {one.slot for one in done.skipped} == {slot.id for slot in found}
    assert len(done.save) + len(done.skipped) == len(found)
    assert all(one.why for one in done.skipped)
    tasks = [slot.task or 0 for slot in done.save]
    assert tasks == sorted(tasks, reverse=True)


def test_a_prompt_that_may_not_be_written_is_told_as_that_whatever_else_holds() -> None:
    done = worth_saving(
        [Slot(1, True, 3, 9)], least_tokens=256, private={1}, unchanged={1}, bytes_per_token=None, room=0
    )
    assert [one.why for one in done.skipped] == ["a request forbade it (no-store)"]


@pytest.mark.parametrize(
    ("spare", "kv", "parallel", "mib"),
    [
        (None, 2 * GIB, 4, 0),
        (-GIB, 2 * GIB, 4, 0),
        (200 * MIB, 2 * GIB, 4, 0),  # a quarter would hold next to nothing
        (4 * GIB, 2 * GIB, 4, 1_024),  # a quarter of what is left
        (100 * GIB, 2 * GIB, 4, 2_048),  # four full prompts of half a GiB
        (100 * GIB, 64 * GIB, 1, 4_096),  # never more
        (100 * GIB, 0, 1, 0),
    ],
)
def test_ram_for_prompts_beyond_the_slots_is_bounded(
    spare: int | None, kv: int, parallel: int, mib: int
) -> None:
    host = MemoryPlan("Host", None, None, 0, 0, kv // 2, 0, 0, spare)
    device = MemoryPlan("CUDA0", None, None, 0, 0, kv - kv // 2, 0, 0, None)
    made = replace(plan(parallel=parallel, ctx=1_024), host=host, devices=(device,))
    assert cache_ram_mib(made) == mib
    assert bytes_per_token(made) == (kv / (1_024 * parallel) if kv else None)


@given(st.none() | st.integers(-(1 << 40), 1 << 40), st.integers(0, 1 << 38), st.integers(1, 64))
def test_ram_for_prompts_never_touches_the_reserve(spare: int | None, kv: int, parallel: int) -> None:
    host = MemoryPlan("Host", None, None, 0, 0, kv, 0, 0, spare)
    assert 0 <= cache_ram_mib(replace(plan(parallel=parallel), host=host)) * MIB <= max(0, spare or 0)
