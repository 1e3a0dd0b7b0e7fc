"""Write docs/planner-accuracy.md: the planner's formulas beside what llama.cpp logged.

python -m tests.planning.accuracy
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median

from tests.planning import predictions, truth
from tests.planning.predictions import Checked

TARGET = Path(__file__).parent.parent.parent / "docs" / "planner-accuracy.md"
_INTRODUCTION = """# How close the planner's formulas are

The planner asks the installed engine wherever it can; then its figures are the engine's own. This page is
about the formulas alone, which guide the search and answer where no engine can be asked. Each row below
is a public log of llama.cpp on somebody's machine (`tests/data/memory_truth.json`, with sources),
compared with what the formulas say for the same model and settings. `make accuracy` writes this page; a
test says when it is out of date.

- **Exact**: weights (from the file's tensor table), KV cache and recurrent state. They differ from a log
  only by its rounding. No log has a file's tensor table, so weights are checked on real files in the
  tests.
- **Close**: the compute buffer of one GPU that has the whole model. For dense models and mixtures of
  experts the engine's graph is recorded and its allocation repeated; for recurrent, MLA and
  per-layer-embedding models and for builds before June 2026 a closed form stands for it. Promised: within
  10 % on at least 80 % of the rows.
- **Bounded**: everything else. With a part of the model in RAM the engine copies weights and caches to
  the first device; how well they fit into the holes of earlier copies depends on the build. The planner
  takes enough: never more than 10 % under the log, sometimes well above it. The rows lack tensor sizes,
  so these come from the dimensions and the bits per weight of the file's main format.

Rows that are outside, and why: the BERT row's cache (builds of 2025 gave encoders one; since then they
have none). GLM-5.2 with experts in RAM is far above: the bound adds two expert tensors of different size,
and this file's are mixed in a way that its log does not tell.

On the Vulkan device made of the CPU, every number of layers of SmolLM2 and Gemma 3 is loaded and compared
in `tests/planning/test_vulkan_grid.py`.
"""
_Good = Callable[[Checked], bool]
_NAMES = {"kv": "KV cache", "rs": "recurrent state", "compute": "compute"}


def page() -> str:
    """The whole page, as it should be."""
    checks = [check for row in truth.rows() for check in predictions.checks(row)]
    lines = [_INTRODUCTION, "## By group", "", *_groups(checks), "", "## Every row", ""]
    lines += ["Sizes in MiB. `error` is how far the formula is above (+) or below (-) the log.", ""]
    lines += _table(
        ("row", "engine", "era", "backend", "model", "placement", "figure", "logged", "predicted", "error"),
        [_row(check) for check in checks],
    )
    return "\n".join(lines) + "\n"


def _groups(checks: Sequence[Checked]) -> list[str]:
    mainline = [check for check in checks if check.row["engine"] == "llama.cpp"]
    others = [check for check in checks if check.row["engine"] != "llama.cpp"]
    close = _compute(mainline, "exact")
    new = [check for check in close if check.row["era"] == "new"]
    groups = [
        ("KV cache, llama.cpp", _of(mainline, "kv"), "within 0.5 %", _within(0.005)),
        ("recurrent state, llama.cpp", _of(mainline, "rs"), "within 0.5 %", _within(0.005)),
        ("compute, one GPU with all, llama.cpp", close, "within 10 %", _within(0.10)),
        ("... of these, builds since June 2026", new, "within 10 %", _within(0.10)),
        ("compute, bounded, llama.cpp", _compute(mainline, "bounded"), "not under by 10 %", _not_under),
        ("KV cache, forks and other engines", _of(others, "kv"), "within 0.5 %", _within(0.005)),
        ("compute, other engines", _of(others, "compute"), "not under by 10 %", _not_under),
    ]
    rows = [_group(name, found, bar, good) for name, found, bar, good in groups if found]
    return _table(("group", "rows", "bar", "share", "median", "lowest", "highest"), rows)


def _group(name: str, found: Sequence[Checked], bar: str, good: _Good) -> tuple[str, ...]:
    errors = [check.error for check in found]
    share = sum(map(good, found)) / len(found)
    middle = median(abs(error) for error in errors)
    ends = _percent(min(errors)), _percent(max(errors))
    return (name, str(len(found)), bar, f"{100 * share:.0f} %", f"{100 * middle:.1f} %", *ends)


def _row(check: Checked) -> tuple[str, ...]:
    row = check.row
    placement = row["placement"]
    placement += ", several GPUs" if row["multi_gpu"] else ""
    placement += ", experts in RAM" if row["experts_on_cpu"] else ""
    return (
        row["id"],
        row["engine"],
        row["era"] or "?",
        row["backend"] or "?",
        row["model"],
        placement,
        _NAMES[check.what],
        f"{check.logged:.1f}",
        f"{check.predicted:.1f}",
        _percent(check.error),
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(cell.replace("|", "/") for cell in line) + " |" for line in lines]


def _of(checks: Sequence[Checked], what: predictions.What) -> list[Checked]:
    return [check for check in checks if check.what == what]


def _compute(checks: Sequence[Checked], group: predictions.Group) -> list[Checked]:
    return [check for check in _of(checks, "compute") if predictions.group_of(check.row) == group]


def _within(bound: float) -> _Good:
    return lambda check: abs(check.error) <= bound


def _not_under(check: Checked) -> bool:
    return check.error >= -0.10


def _percent(error: float) -> str:
    return f"{100 * error:+.1f} %".replace("-0.0", "+0.0")


if __name__ == "__main__":
    TARGET.write_text(page(), encoding="utf-8")
    print(f"Wrote {TARGET}")
