"""What loads teach: kept by model, build and device, careful, bounded, and never in the way."""

from __future__ import annotations

import json
import logging
import multiprocessing
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.operations.lessons import learned_file
from appliance.operations.lessons.learning import FORGOTTEN_AFTER_S, MEASURED_FOR_S, Before, Lessons
from appliance.planning import Learned, MeasuredRow, MemoryPlan, Plan
from appliance.planning.result import Beside
from appliance.units import GIB, MIB

SHA, BUILD = "ab" * 32, "llama-server 10434"
CUDA = MemoryPlan(
    "CUDA0", 8 * GIB, 7 * GIB, 512 * MIB, 900 * MIB, 200 * MIB, 100 * MIB, 350 * MIB, 0,
    computed_compute=100 * MIB,
)  # fmt: skip
HOST = MemoryPlan(
    "Host", 32 * GIB, 20 * GIB, 512 * MIB, 50 * MIB, 0, 20 * MIB, 128 * MIB, 0, computed_compute=20 * MIB
)
PLAN = Plan(
    model="m", arch="llama", engine_build=BUILD, n_layer=30, gpu_layers=31, ctx=4096, parallel=2,
    kv_type="f16", flash_attn="auto", n_ubatch=512, threads=None, devices=(CUDA,), host=HOST, fits=True,
    measured=False, reasons=(), flags=("-ngl", "31", "-c", "8192"),
)  # fmt: skip
LOG = {
    "CUDA0": {"model": 900.0, "kv": 200.0, "compute": 110.0},
    "CPU_Mapped": {"model": 950.0},
    "CUDA_Host": {"compute": 25.0, "output": 1.0},
}


class Clock:
    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def lessons(tmp_path: Path, clock: Clock) -> Lessons:
    return Lessons(tmp_path / "learned.json", clock=clock)


def test_a_load_teaches_the_ratio_of_compute_and_what_the_driver_takes(lessons: Lessons) -> None:
    lessons.note_load(SHA, BUILD, PLAN, LOG, {"CUDA0": 1510 * MIB})
    found = lessons.of(SHA, BUILD)
    assert found["CUDA0"] == Learned(full=1.1, partial=None, overhead=300 * MIB)
    assert found["Host"] == Learned(full=None, partial=1.25, overhead=None)


def test_full_and_partial_offload_are_kept_apart(lessons: Lessons) -> None:
    lessons.note_load(SHA, BUILD, PLAN, LOG)
    lessons.note_load(
        SHA, BUILD, replace(PLAN, gpu_layers=20), LOG | {"CUDA0": {"model": 900.0, "compute": 150.0}}
    )
    assert lessons.of(SHA, BUILD)["CUDA0"] == Learned(1.1, 1.5, None)


def test_the_ratio_refers_to_the_formula_also_when_the_plan_was_measured(lessons: Lessons) -> None:
    measured = replace(CUDA, compute=110 * MIB, how="measured")
    lessons.note_load(SHA, BUILD, replace(PLAN, devices=(measured,), measured=True), LOG)
    assert lessons.of(SHA, BUILD)["CUDA0"].full == pytest.approx(1.1)
    unknown = replace(measured, computed_compute=None)
    lessons.note_load("cd" * 32, BUILD, replace(PLAN, devices=(unknown,)), LOG)
    assert "CUDA0" not in lessons.of("cd" * 32, BUILD), "without a base nothing can be compared"


def test_too_low_is_mended_at_once_and_too_high_by_and_by(lessons: Lessons) -> None:
    for compute, wanted in ((100.0, 1.0), (130.0, 1.3), (100.0, 1.21)):
        lessons.note_load(SHA, BUILD, PLAN, LOG | {"CUDA0": {"model": 900.0, "compute": compute}})
        assert lessons.of(SHA, BUILD)["CUDA0"].full == pytest.approx(wanted)


def test_absurd_figures_stay_within_sane_limits(lessons: Lessons) -> None:
    log = {"CUDA0": {"model": 900.0, "compute": 90_000.0}}
    lessons.note_load(SHA, BUILD, PLAN, log, {"CUDA0": 80 << 40})
    assert lessons.of(SHA, BUILD)["CUDA0"] == Learned(full=4.0, overhead=4 * GIB)


def test_a_driver_that_says_less_than_the_buffers_has_said_nothing(lessons: Lessons) -> None:
    lessons.note_load(SHA, BUILD, PLAN, LOG, {"CUDA0": 800 * MIB})
    assert lessons.of(SHA, BUILD)["CUDA0"].overhead is None


def test_a_driver_that_does_not_tell_stays_unknown(lessons: Lessons) -> None:
    lessons.note_load(SHA, BUILD, PLAN, LOG, None)
    assert lessons.of(SHA, BUILD)["CUDA0"].overhead is None


def test_another_split_than_the_planned_one_teaches_no_ratio(lessons: Lessons) -> None:
    lessons.note_load(SHA, BUILD, PLAN, LOG | {"CUDA0": {"model": 400.0, "compute": 500.0}})
    assert lessons.of(SHA, BUILD) == {}


def test_what_the_driver_takes_is_known_for_models_that_never_ran(lessons: Lessons) -> None:
    lessons.note_load(SHA, BUILD, PLAN, LOG, {"CUDA0": 1510 * MIB})
    assert lessons.of("cd" * 32, BUILD) == {"CUDA0": Learned(overhead=300 * MIB)}
    assert lessons.of(None, BUILD) == {"CUDA0": Learned(overhead=300 * MIB)}
    assert lessons.of(SHA, "another build") == {}


def test_another_card_under_the_same_name_starts_anew(lessons: Lessons) -> None:
    lessons.note_load(SHA, BUILD, PLAN, LOG, {"CUDA0": 1710 * MIB})
    other = replace(PLAN, devices=(replace(CUDA, total=24 * GIB),))
    lessons.note_load(SHA, BUILD, other, LOG, {"CUDA0": 1310 * MIB})
    assert lessons.of(SHA, BUILD)["CUDA0"].overhead == 100 * MIB


def test_a_run_without_devices_teaches_about_ram(lessons: Lessons) -> None:
    in_ram = replace(PLAN, gpu_layers=0, devices=())
    lessons.note_load(SHA, BUILD, in_ram, {"CPU": {"compute": 30.0}, "CPU_REPACK": {"model": 80.0}})
    assert lessons.of(SHA, BUILD) == {"Host": Learned(full=1.5)}


def test_beside_a_projector_the_model_alone_is_compared_and_the_driver_is_not(lessons: Lessons) -> None:
    card = replace(CUDA, model=1700 * MIB, beside=Beside(model=800 * MIB))
    lessons.note_load(SHA, BUILD, replace(PLAN, devices=(card,), mmproj="gpu"), LOG, {"CUDA0": 2500 * MIB})
    assert lessons.of(SHA, BUILD)["CUDA0"] == Learned(full=1.1, overhead=None)


def test_measurements_are_found_again_for_the_same_flags_and_age(lessons: Lessons, clock: Clock) -> None:
    rows = {"CUDA0": MeasuredRow(1, 2, 3), "Host": MeasuredRow(4, 5, 6)}
    lessons.note_measured(SHA, BUILD, PLAN.flags, rows)
    assert lessons.measured(SHA, BUILD, PLAN.flags) == rows
    assert lessons.measured(SHA, BUILD, (*PLAN.flags, "-ub", "64")) is None
    assert lessons.measured(None, BUILD, PLAN.flags) is None
    clock.now += MEASURED_FOR_S + 1
    assert lessons.measured(SHA, BUILD, PLAN.flags) is None


def test_bandwidths_are_smoothed_and_nonsense_is_refused(lessons: Lessons) -> None:
    assert lessons.bandwidth(BUILD, "CUDA0") is None
    lessons.note_bandwidth(BUILD, "CUDA0", 100e9)
    lessons.note_bandwidth(BUILD, "CUDA0", 200e9)
    for nonsense in (0.0, -1.0, 99e6, 21e12, float("nan"), float("inf")):
        lessons.note_bandwidth(BUILD, "CUDA0", nonsense)
    assert lessons.bandwidth(BUILD, "CUDA0") == pytest.approx(130e9)


@pytest.mark.parametrize("nonsense", [1.0, 99e6, 21e12, 1e300])
def test_a_bandwidth_that_no_memory_has_is_not_used_and_does_not_stay(
    tmp_path: Path, lessons: Lessons, nonsense: float
) -> None:
    rows = {"CUDA0": {"at": 1.0, "bandwidth": nonsense}, "Host": {"at": 1.0, "bandwidth": 40e9}}
    (tmp_path / "learned.json").write_text(json.dumps({"v": 1, "builds": {BUILD: rows}}))
    assert lessons.bandwidth(BUILD, "CUDA0") is None
    assert lessons.bandwidths(BUILD) == {"Host": 40e9}
    lessons.note_bandwidth(BUILD, "CUDA0", 100e9)
    assert lessons.bandwidth(BUILD, "CUDA0") == 100e9


def test_what_ran_out_is_of_one_engine_file_and_a_person_may_have_it_forgotten(lessons: Lessons) -> None:
    lessons.note_ran_out(SHA, BUILD, PLAN, "CUDA0", path="/a/llama-server")
    assert lessons.ran_out(SHA, BUILD, PLAN, path="/a/llama-server") is not None
    assert lessons.ran_out(SHA, BUILD, PLAN, path="/b/llama-server") is None
    assert lessons.ran_out(SHA, BUILD, PLAN) is None
    lessons.note_ran_out("cd" * 32, BUILD, PLAN, "CUDA0", path="/a/llama-server")
    lessons.forget_ran_out(SHA)
    assert lessons.ran_out(SHA, BUILD, PLAN, path="/a/llama-server") is None
    assert lessons.ran_out("cd" * 32, BUILD, PLAN, path="/a/llama-server") is not None


def test_where_the_place_is_unknown_all_devices_count(lessons: Lessons) -> None:
    other = replace(CUDA, name="CUDA1")
    both = replace(PLAN, devices=(CUDA, other))
    lessons.note_ran_out(SHA, BUILD, both, "unknown")
    assert lessons.ran_out(SHA, BUILD, both) is not None
    moved = (replace(CUDA, kv=100 * MIB), replace(other, kv=300 * MIB))
    assert lessons.ran_out(SHA, BUILD, replace(PLAN, devices=moved)) is not None, "as much in all"
    less = (replace(CUDA, kv=100 * MIB), other)
    assert lessons.ran_out(SHA, BUILD, replace(PLAN, devices=less)) is None
    roomier = (replace(CUDA, free=8 * GIB), replace(other, free=8 * GIB))
    assert lessons.ran_out(SHA, BUILD, replace(PLAN, devices=roomier)) is None


def test_a_plan_that_ran_out_is_known_until_there_is_more_room_or_it_worked(
    lessons: Lessons, clock: Clock
) -> None:
    lessons.note_ran_out(SHA, BUILD, PLAN, "CUDA0")
    larger = replace(PLAN, devices=(replace(CUDA, kv=300 * MIB),), flags=("-c", "9999"))
    smaller = replace(PLAN, devices=(replace(CUDA, kv=100 * MIB),), flags=("-c", "4096"))
    roomier = replace(PLAN, devices=(replace(CUDA, free=8 * GIB),))
    assert lessons.ran_out(SHA, BUILD, PLAN) == Before("CUDA0", clock.now)
    assert lessons.ran_out(SHA, BUILD, larger) == Before("CUDA0", clock.now), (
        "more than what failed will fail, too"
    )
    assert lessons.ran_out(SHA, BUILD, smaller) is None
    assert lessons.ran_out(SHA, BUILD, roomier) is None
    assert lessons.ran_out("cd" * 32, BUILD, PLAN) is None
    lessons.note_load(SHA, BUILD, smaller, LOG)
    assert lessons.ran_out(SHA, BUILD, PLAN) is not None, "a smaller load proves nothing"
    lessons.note_load(SHA, BUILD, larger, LOG)
    assert lessons.ran_out(SHA, BUILD, PLAN) is None
    lessons.note_ran_out(SHA, BUILD, PLAN, "CUDA0")
    clock.now += FORGOTTEN_AFTER_S + 1
    assert lessons.ran_out(SHA, BUILD, PLAN) is None


def test_the_file_is_private_bounded_and_forgets_the_oldest(
    tmp_path: Path, lessons: Lessons, clock: Clock
) -> None:
    for number in range(learned_file.RAN_OUT + 5):
        clock.now += 1
        lessons.note_ran_out(f"{number:064x}", BUILD, PLAN, "CUDA0")
        lessons.note_load(f"{number:064x}", f"build {number}", PLAN, LOG)
        lessons.note_measured(SHA, BUILD, (str(number),), {"Host": MeasuredRow(1, 1, 1)})
    file = tmp_path / "learned.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    document = json.loads(file.read_text())
    assert len(document["ran_out"]) == learned_file.RAN_OUT
    assert len(document["builds"]) == learned_file.BUILDS
    assert lessons.ran_out(f"{0:064x}", BUILD, PLAN) is None
    assert lessons.ran_out(f"{learned_file.RAN_OUT + 4:064x}", BUILD, PLAN) is not None


@pytest.mark.parametrize(
    "broken",
    [
        "", "{", "[]", '{"v": 99}', '{"v": 1, "models": 3}', "[" * 99_999,
        '{"v": 1, "builds": {"b": {"p": {"bandwidth": -1}}}}',
    ],
)  # fmt: skip
def test_a_broken_file_is_begun_anew_with_a_warning(
    tmp_path: Path, lessons: Lessons, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "learned.json").write_text(broken)
    with caplog.at_level(logging.WARNING):
        assert lessons.of(SHA, BUILD) == {}
    assert "begins anew" in caplog.text
    lessons.note_load(SHA, BUILD, PLAN, LOG)
    assert "CUDA0" in lessons.of(SHA, BUILD)


def test_a_folder_that_takes_nothing_stops_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    lessons = Lessons(tmp_path / "file" / "learned.json")
    lessons.note_load(SHA, BUILD, PLAN, LOG)
    assert lessons.of(SHA, BUILD) == {}
    assert "can't be kept" in caplog.text


def _write(file: Path, worker: int) -> None:
    for number in range(20):
        Lessons(file).note_measured(
            SHA, BUILD, (f"{worker}-{number}",), {"Host": MeasuredRow(worker, number, 0)}
        )


def test_two_processes_lose_nothing_of_each_other(tmp_path: Path) -> None:
    file = tmp_path / "learned.json"
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_write, args=(file, worker)) for worker in (1, 2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0]
    lessons = Lessons(file)
    for worker in (1, 2):
        for number in range(20):
            found = lessons.measured(SHA, BUILD, (f"{worker}-{number}",))
            assert found == {"Host": MeasuredRow(worker, number, 0)}
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
