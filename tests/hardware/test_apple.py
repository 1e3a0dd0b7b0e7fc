"""What macOS's programs write, as parsers see it. The texts are of real machines; nothing is run here."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from appliance.hardware import Gpu
from appliance.hardware.sensors import GpuSample, apple
from appliance.monitor.child.apple_reader import AppleReader, run_program

M4 = """+-o AGXAcceleratorG16G  <class AGXAcceleratorG16G, id 0x10000050b, registered, active>
    {
      "IOClass" = "AGXAcceleratorG16G"
      "PerformanceStatistics" = {"In use system memory (driver)"=0,"Tiler Utilization %"=20,\
"recoveryCount"=0,"Renderer Utilization %"=19,"Device Utilization %"=21,"SplitSceneCount"=0,\
"In use system memory"=351141888}
      "model" = "Apple M4"
      "gpu-core-count" = 10
    }
"""
LIMITED = """2026-11-02 10:11:12 +0100 CPU Power notify
	CPU_Scheduler_Limit 	= 100
	CPU_Available_CPUs 	= 8
	CPU_Speed_Limit 	= 72
"""
QUIET = """Note: No thermal warning level has been recorded
Note: No performance warning level has been recorded
Note: No CPU power status has been recorded
"""
M4_GPU = Gpu("apple-0", 0, "Apple M4", "metal", integrated=True)


def test_ioreg_tells_use_and_memory_and_not_the_figure_beside_it() -> None:
    assert apple.use(M4) == apple.Use(21.0, 351141888)


def test_of_several_accelerators_the_first_that_tells_counts() -> None:
    other = '+-o Virtual  <class IOAccelerator>\n    {\n      "IOClass" = "x"\n    }\n'
    assert apple.use(other + M4) == apple.Use(21.0, 351141888)


@pytest.mark.parametrize("text", [None, "", "garbage", '+-o X <class X>\n "PerformanceStatistics" = {}'])
def test_without_figures_all_is_unknown(text: str | None) -> None:
    assert apple.use(text) == apple.Use()
    assert apple.reasons(text) is None


def test_nonsense_is_unknown() -> None:
    assert apple.use('"Device Utilization %"=4294967295,"In use system memory"=5') == apple.Use(None, 5)
    assert apple.reasons("CPU_Speed_Limit = 1000") is None


@pytest.mark.parametrize(
    ("text", "mask"),
    [(LIMITED, 0x20), (LIMITED.replace("72", "100"), 0), (LIMITED.replace("72", "0"), 0x20), (QUIET, None)],
)
def test_a_lowered_speed_limit_is_heat(text: str, mask: int | None) -> None:
    assert apple.reasons(text) == mask


class Programs:
    def __init__(self) -> None:
        self.now, self.ran, self.therm = 0.0, list[str](), QUIET

    def __call__(self, command: Sequence[str]) -> str | None:
        self.ran.append(command[0])
        return M4 if command[0] == "ioreg" else self.therm


def test_programs_run_slowly_and_their_figures_stand_meanwhile() -> None:
    programs = Programs()
    reader = AppleReader(lambda: programs.now, run=programs, detect=lambda: (M4_GPU,))
    for _ in range(20):
        (row,) = reader.read()
        assert (row.id, row.utilisation, row.used, row.temperature) == ("apple-0", 21.0, 351141888, None)
        programs.now += 1
    assert (programs.ran.count("ioreg"), programs.ran.count("pmset")) == (4, 2)
    programs.therm = LIMITED
    assert [gpu.reasons for gpu in reader.read()] == [0x20]


def test_a_program_that_fails_makes_its_figures_unknown() -> None:
    def failing(_: Sequence[str]) -> str | None:
        return None

    (row,) = AppleReader(lambda: 0.0, run=failing, detect=lambda: (M4_GPU,)).read()
    assert row == GpuSample("apple-0", 0, "Apple M4", "metal")


def test_elsewhere_no_program_is_run() -> None:
    programs = Programs()
    assert AppleReader(lambda: 0.0, run=programs, detect=lambda: ()).read() == []
    assert programs.ran == []


def test_a_limit_that_the_user_set_is_the_total() -> None:
    programs = Programs()
    gpu = Gpu("apple-0", 0, "Apple M4", "metal", total=48 << 30)
    (row,) = AppleReader(lambda: 0.0, run=programs, detect=lambda: (gpu,)).read()
    assert (row.total, row.memory_source) == (48 << 30, "driver")


def test_a_missing_or_failing_program_is_none() -> None:
    assert run_program(("no-such-program-of-macos",)) is None
    assert run_program(("false",)) is None
    assert run_program(("echo", "words")) == "words\n"
