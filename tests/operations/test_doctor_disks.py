"""What `doctor` says of free space: of the models, and of the state where it is on another device."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from appliance.operations import doctor
from appliance.paths import Paths
from appliance.units import GIB


@pytest.mark.parametrize(
    ("elsewhere", "free", "told"),
    [
        (False, 0, [("disk", "ok")]),
        (True, 0, [("disk", "ok"), ("disk state", "problem")]),
        (True, GIB, [("disk", "ok"), ("disk state", "ok")]),
    ],
)
def test_the_state_is_looked_at_where_it_is_on_another_device(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, elsewhere: bool, free: int, told: list[tuple[str, str]]
) -> None:
    paths.make()
    paths.models.mkdir(parents=True, exist_ok=True)
    stat = Path.stat

    def other(self: Path, **options: Any) -> Any:
        found = stat(self, **options)
        if self != paths.state or not elsewhere:
            return found
        values = list(found)
        values[2] = found.st_dev + 1
        return os.stat_result(values)

    def usage(folder: Path) -> Any:
        return SimpleNamespace(free=free if folder == paths.state else 100 * GIB)

    monkeypatch.setattr(Path, "stat", other)
    monkeypatch.setattr(shutil, "disk_usage", usage)
    found = doctor._disks(paths)
    assert [(one.check, one.level) for one in found] == told
    for one in found[1:]:
        assert str(paths.state) in one.detail
        assert (one.todo is None) == (one.level == "ok")
