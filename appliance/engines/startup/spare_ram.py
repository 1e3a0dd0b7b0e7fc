"""How much RAM may be filled with a file that is about to be needed, without pushing out what others need.

"Available" counts the whole page cache as free, also the weights that a running engine has mapped. Those are
taken off here.
"""

from __future__ import annotations

from pathlib import Path

from appliance.hardware import cgroup
from appliance.hardware.host import ram
from appliance.hardware.sysfs import Roots

_ROOTS = Roots()
_KIB = 1024


def spare_ram(roots: Roots = _ROOTS) -> int | None:
    """Bytes; None when it can't be read. Raises nothing."""
    available = ram(cgroup.read(roots)).available
    if available is None:
        return None
    return max(0, available - mapped(roots))


def mapped(roots: Roots = _ROOTS) -> int:
    """Bytes of files that programs have mapped; 0 where the system does not tell (not Linux)."""
    try:
        text = Path(roots.proc / "meminfo").read_text(encoding="utf-8")
    except OSError:
        return 0
    for line in text.splitlines():
        name, _, value = line.partition(":")
        figure = value.split()[:1]
        if name == "Mapped" and figure and figure[0].isdecimal():
            return int(figure[0]) * _KIB
    return 0
