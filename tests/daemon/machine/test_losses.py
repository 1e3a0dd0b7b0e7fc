"""Which GPU is lost, why, whom that concerns, and when it is looked for: tables, without a machine."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.daemon.machine import losses, returning
from appliance.daemon.machine.losses import TRY_EVERY_S, UNUSABLE, Key, Known, Seen
from appliance.daemon.machine.returning import LONGEST_LOOK_S, LOOK_S
from appliance.engines import Build, Choice
from appliance.engines.devices import from_text
from appliance.engines.lost_devices import says_lost
from appliance.hardware import Gpu, Machine
from appliance.hardware.nvml import trouble
from appliance.operations.machine.survey import Survey

BIG, SMALL = (
    Gpu("GPU-1", 0, "Big", "cuda", pci="0000:01:00.0"),
    Gpu("GPU-2", 1, "Small", "cuda", pci="0000:02:00.0"),
)
_SEEN: tuple[Seen, ...] = ("here", "asleep", "trouble", "gone", "unknown")


def build(*names: str, prefix: str = "CUDA", path: str = "/a/llama-server") -> Build:
    rows = "".join(f"  {prefix}{at}: {name} (8192 MiB, 8000 MiB free)\n" for at, name in enumerate(names))
    return Build("llama-server", path, "1", "llama-server 1", from_text(rows), sees_gpu=bool(names))


def look(*builds: Build, gpus: tuple[Gpu, ...] = (BIG, SMALL), machine: Machine | None = None) -> Survey:
    return Survey(machine or Machine(gpus=gpus), builds, Choice(builds[0], "the first"), None)


def after(*looks: Survey) -> dict[Key, Known]:
    known: dict[Key, Known] = {}
    for at, one in enumerate(looks):
        known = losses.after_look(known, one, float(at), float(at))
    return known


def lost(known: dict[Key, Known]) -> list[tuple[str, str]]:
    return [(one.device.description, one.loss.reason) for one in known.values() if one.loss is not None]


def test_a_machine_that_never_had_a_gpu_lost_none() -> None:
    assert lost(after(look(build(), gpus=()), look(build(), gpus=()))) == []


def test_a_device_made_of_the_cpu_is_none_to_lose() -> None:
    assert lost(after(look(build("llvmpipe (LLVM 15)")), look(build()))) == []


@pytest.mark.parametrize(
    ("machine", "reason"),
    [
        (Machine(gpus=()), "off_bus"),
        (Machine(gpus=(BIG,)), "not_listed"),
        (Machine(gpus=(BIG,), trouble=trouble("version_mismatch")), "version_mismatch"),
        (Machine(gpus=(), trouble=trouble("gpu_lost")), "gpu_lost"),
        (Machine(gpus=(BIG,), trouble=trouble("container")), "container"),
    ],
)
def test_each_reason_has_one_message_and_one_thing_to_do(machine: Machine, reason: str) -> None:
    known = after(look(build("Big"), gpus=(BIG,)), look(build(), machine=machine))
    assert lost(known) == [("Big", reason)]
    (one,) = known.values()
    assert one.loss is not None
    assert one.loss.message.startswith("Big: ")
    assert one.loss.fix


def test_an_engine_that_does_not_start_any_more_says_its_own_reason() -> None:
    dead = replace(build(), usable=False, note="libcuda.so.1 is missing.")
    known = after(look(build("Big"), gpus=(BIG,)), look(dead, gpus=(BIG,)))
    assert lost(known) == [("Big", "no_engine")]
    assert "libcuda.so.1" in next(iter(known.values())).loss.message  # type: ignore[union-attr]


def test_the_card_that_is_left_is_not_lost_though_its_number_changed() -> None:
    assert lost(after(look(build("Big", "Small")), look(build("Small"), gpus=(SMALL,)))) == [
        ("Big", "off_bus")
    ]
    assert lost(after(look(build("Big", "Big")), look(build("Big")))) == [("Big", "not_listed")]


def test_a_driver_that_names_its_cards_anew_lost_none() -> None:
    assert lost(after(look(build("Big (old driver)")), look(build("Big (new driver)")))) == []


def test_an_engine_that_was_removed_takes_its_devices_with_it() -> None:
    assert after(look(build("Big")), look(build(path="/other"))) == {}


def test_what_is_listed_again_is_as_ever() -> None:
    known = after(look(build("Big")), look(build()), look(build("Big")))
    assert [(one.state, one.loss) for one in known.values()] == [("ok", None)]


def test_another_engine_that_sees_the_same_card_suffers_no_loss() -> None:
    vulkan = build("Big", prefix="Vulkan", path="/b/llama-server")
    known = after(look(build("Big"), gpus=(BIG,)))
    without = look(vulkan, build(), gpus=(BIG,))
    assert losses.felt(losses.after_look(known, without, 1.0, 1.0), without) is None
    blind = look(build(path="/c"), build(), gpus=(BIG,))
    assert losses.felt(losses.after_look(known, blind, 1.0, 1.0), blind) is not None


def of_no_use(now: float = 0.0) -> Known:
    (one,) = after(look(build("Big"), gpus=(BIG,))).values()
    return losses.unusable(one, now, now)


def test_a_card_of_no_use_is_shunned_for_a_while_though_it_is_listed() -> None:
    one = of_no_use()
    known = losses.after_look({one.key: one}, look(build("Big"), gpus=(BIG,)), 10.0, 10.0)
    assert lost(known) == [("Big", UNUSABLE)]
    assert losses.shunned(known, 10.0) == {"CUDA0"}
    assert losses.shunned(known, TRY_EVERY_S) == frozenset()


def seen(*states: Seen, start: Known | None = None, every_s: float = LONGEST_LOOK_S) -> list[bool]:
    """Which of these looks are worth a try."""
    one, now = start or of_no_use(), 0.0
    worth = []
    for state in states:
        now += every_s
        one, try_it = returning.after_glance(one, state, now)
        worth.append(try_it)
    return worth


def gone() -> Known:
    (one,) = after(look(build("Big"), gpus=(BIG,)), look(build(), gpus=())).values()
    return one


def test_what_comes_back_to_the_bus_is_tried_at_once_also_when_it_sleeps() -> None:
    assert seen("gone", "gone", "here", start=gone(), every_s=30) == [False, False, True]
    assert seen("gone", "asleep", start=gone(), every_s=30) == [False, True]


def test_a_gpu_that_only_sleeps_is_never_woken_to_see_whether_it_works() -> None:
    nights: list[Seen] = ["asleep"] * 20
    assert seen(*nights) == [False] * 20


def test_what_always_looked_well_is_tried_when_time_has_passed() -> None:
    assert seen("here", "here", "here", every_s=250) == [False, False, True]


@given(st.lists(st.tuples(st.sampled_from(_SEEN), st.floats(2, 400)), max_size=60))
def test_tries_that_fail_are_ten_minutes_apart(steps: list[tuple[Seen, float]]) -> None:
    one, now, tries = gone(), 0.0, []
    for state, pause in steps:
        now += pause
        if not returning.due(one, now):
            continue
        one, worth = returning.after_glance(one, state, now)
        if worth:
            tries.append(now)
            one = returning.tried(one, works=False, now=now)
    assert all(later - earlier >= TRY_EVERY_S for earlier, later in pairwise(tries))


def test_looks_get_rarer() -> None:
    pauses = [returning.pause_s(looks) for looks in range(40)]
    assert pauses[0] == LOOK_S
    assert pauses[-1] == LONGEST_LOOK_S
    assert pauses == sorted(pauses)


@pytest.mark.parametrize(
    ("line", "is_lost"),
    [
        ("CUDA error: unspecified launch failure", True),
        ("ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device is detected", True),
        ("terminate called after throwing 'vk::DeviceLostError': vk::Queue::submit: ErrorDeviceLost", True),
        ("error while handling argument \"-dev\": invalid device: CUDA0", True),
        ("CUDA error: an illegal memory access was encountered", False),
        ("CUDA error: out of memory", False),
        ("load_tensors: offloaded 31/31 layers to GPU", False),
    ],
)  # fmt: skip
def test_the_words_of_a_lost_device(line: str, is_lost: bool) -> None:
    assert says_lost(["something else", line]) == is_lost
