"""The engine's allocator and graph, repeated: hand-made sequences whose buffers can be added up on paper."""

from __future__ import annotations

from appliance.planning.memory.allocator import Step, aligned, peak
from appliance.planning.memory.graph import Graph, floats

A, B, C, D, E = range(5)


def _steps(*events: tuple[str, int]) -> list[Step]:
    return [(what == "new", tensor, tensor) for what, tensor in events]


def test_a_hole_that_is_large_enough_is_used_again() -> None:
    steps = _steps(("new", A), ("new", B), ("free", A), ("new", C))

    assert peak(steps, [512, 256, 512]) == 768
    assert peak(steps, [512, 256, 640]) == 512 + 256 + 640  # too small by a little


def test_the_smallest_hole_that_fits_is_taken() -> None:
    steps = _steps(("new", A), ("new", B), ("new", C), ("new", D), ("free", A), ("free", C), ("new", E))

    # E takes C's hole and not A's, into which it fits as well: A's stays whole
    assert peak(steps, [1_024, 128, 384, 128, 384]) == 1_664
    further = [*steps, (True, 5, 0)]
    assert peak(further, [1_024, 128, 384, 128, 384]) == 1_664


def test_neighbouring_holes_become_one_and_the_last_one_goes_back_to_the_end() -> None:
    steps = _steps(("new", A), ("new", B), ("new", C), ("free", A), ("free", B), ("new", D))
    assert peak(steps, [256, 256, 128, 512]) == 640

    steps = _steps(("new", A), ("new", B), ("free", A), ("free", B), ("new", C))
    assert peak(steps, [256, 256, 640]) == 640


def test_sizes_are_counted_in_steps_of_the_alignment() -> None:
    assert [aligned(n) for n in (0, 1, 128, 129)] == [0, 128, 128, 256]


def _peak(graph: Graph, unit: int = 128) -> int:
    return peak(graph.steps(), [unit * int(number) for _, number in graph.sizes])


def test_a_result_takes_the_place_of_a_source_that_ends() -> None:
    graph = Graph()
    source = graph.op(floats(4))
    graph.op(floats(4), source, in_place=True)
    assert _peak(graph) == 4 * 128

    graph = Graph()
    source = graph.op(floats(4))
    first = graph.op(floats(4), source, in_place=True)  # the source is needed once more
    graph.op(floats(4), first, source, in_place=True)
    assert _peak(graph) == 8 * 128


def test_weights_from_elsewhere_follow_each_other_in_the_same_place() -> None:
    graph = Graph()
    state = graph.copy(floats(1))
    for _ in range(3):
        state = graph.op(floats(1), graph.copy(("other", 16), weight=True), state)

    assert _peak(graph) == (1 + 16 + 1) * 128


def test_what_a_split_needs_is_copied_before_its_first_operation() -> None:
    graph = Graph()
    state = graph.op(floats(1))
    graph.op(floats(1), state)
    graph.copy(("other", 8))  # no weight: it belongs to the split that has begun

    assert graph.steps()[0] == (True, 2, 1)


def test_a_copy_for_all_blocks_is_made_once() -> None:
    graph = Graph()

    assert graph.copy(("mask", 0), once=True) == graph.copy(("mask", 0), once=True)
    assert graph.copy(("mask", 0), once=True) != graph.copy(("mask", 1), once=True)
