"""The memory tables that an engine prints in its dry run, and whose they are.

    common_memory_breakdown_print: |   - Vulkan0 (...) |  2048 = 2048 + ( 100 =  51 +  33 +  15) + -100 |
    common_memory_breakdown_print: |   - Host          |                  130 =  68 +  57 +   4         |

Whole MiB, cut off. A draft model has a table of its own: build 10434 prints it first, 11549 behind that of
the model, after a line that says so (`common/fit.cpp`, `server-context.cpp`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from appliance.engines.logparse import on_host
from appliance.planning import MeasuredRow
from appliance.planning.values import HOST
from appliance.units import MIB

_ROW = re.compile(r"common_memory_breakdown_print: \|\s+- (\w+)[^|]*\|.*?\d+ =\s*(\d+) \+\s*(\d+) \+\s*(\d+)")
_PRINTS = "common_memory_breakdown_print"
_MODEL = "getting device memory data for initial parameters"
_OVER = "fit params to free device memory"
"""In the line that ends the dry run, with or without a table. What follows would be a real load."""


class Breakdown:
    """Reads one process's lines in order."""

    def __init__(self, *, drafted: bool = False) -> None:
        """`drafted`: the engine has a draft model, too."""
        self._of_model = not drafted
        self._found: dict[str, MeasuredRow] = {}
        self.over = False
        """There is nothing more to wait for."""

    @property
    def rows(self) -> Mapping[str, MeasuredRow] | None:
        """The model's table by device and `Host`; None when there is none, or not all of it yet."""
        return dict(self._found) if self.over and self._found else None

    def feed(self, line: str) -> None:
        """Take one cleaned line."""
        if self.over:
            return  # the end of a server prints a table again
        if _MODEL in line:
            self._of_model = True
        elif not self._of_model:
            self.over = _OVER in line
        elif match := _ROW.search(line):
            self._add(HOST if on_host(match[1]) else match[1], *(int(match[n]) * MIB for n in (2, 3, 4)))
        else:
            self.over = (bool(self._found) and _PRINTS not in line) or _OVER in line

    def _add(self, name: str, model: int, context: int, compute: int) -> None:
        before = self._found.get(name, MeasuredRow(0, 0, 0))
        self._found[name] = MeasuredRow(
            before.model + model, before.context + context, before.compute + compute
        )
