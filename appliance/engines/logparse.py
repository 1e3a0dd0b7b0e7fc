"""What an engine's log says about its load, by the lines of llama.cpp at verbosity 4.

Two traps, both measured: with fit on a dry run prints the buffer lines first with 0.00 MiB, and with
`-dev none` the line `offloaded 12/31 layers to GPU` is printed although nothing is on a device. So buffers
are counted anew with each load pass, and layers count only when a device holds a model buffer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from appliance.engines.failures import UNKNOWN_PLACE, Explained, explain_line, place_in
from appliance.planning import MemoryPlan
from appliance.planning.values import HOST

_OFFLOADED = re.compile(r"offloaded (\d+)/(\d+) layers to GPU")
_BUFFER = re.compile(r"([\w.-]+)\s+(model|KV|RS|compute|output) buffer size\s*=\s*([\d.]+) MiB")
_SLOTS = re.compile(r"n_slots = (\d+), n_ctx_slot = (\d+), kv_unified = '(\w+)'")
_CONTEXT = re.compile(r"llama_context: n_ctx\s+= (\d+)")
_BESIDE = re.compile(r"loading draft model|\bCLIP using ")
"""From such a line on, weights and buffers are those of a draft model or a projector."""
_HOST_NAMES = ("CPU", "Host", "AMX", "BLAS")


def on_host(buffer: str) -> bool:
    """True for a buffer in RAM: `CPU`, `CPU_Mapped`, `CPU_REPACK`, `AMX`, `Vulkan_Host`."""
    return buffer.startswith(_HOST_NAMES) or buffer.endswith("_Host")


@dataclass(slots=True)
class LoadReader:
    """Reads one process's lines in order. Not locked: one writer, and readers take whole values."""

    layers: tuple[int, int] | None = None
    """(offloaded, all) as the log says it."""
    slots: int | None = None
    ctx_slot: int | None = None
    unified: bool | None = None
    n_ctx: int | None = None
    failure: Explained | None = None
    ran_out_at: str | None = None
    """The buffer, or the number of the device, that the last failed allocation was for."""
    _model: dict[str, float] = field(default_factory=dict)
    _context: dict[tuple[str, str], float] = field(default_factory=dict)
    _beside: bool = False

    def feed(self, line: str) -> None:
        """Take one cleaned line."""
        self.ran_out_at = place_in(line) or self.ran_out_at
        self._beside = self._beside or _BESIDE.search(line) is not None
        if match := _SLOTS.search(line):
            self.slots, self.ctx_slot, self.unified = int(match[1]), int(match[2]), match[3] == "true"
        elif not self._beside and self._load(line):
            return
        elif (found := explain_line(line)) is not None and (
            self.failure is None or found.weight >= self.failure.weight
        ):
            self.failure = found

    def _load(self, line: str) -> bool:
        """Take a line about weights and buffers of the model that is served."""
        if "load_tensors: loading model tensors" in line:
            self._model = {}
        elif "llama_context: constructing" in line:
            self._context = {}
        elif match := _BUFFER.search(line):
            self._buffer(match[1], match[2].lower(), float(match[3]))
        elif match := _OFFLOADED.search(line):
            self.layers = int(match[1]), int(match[2])
        elif match := _CONTEXT.search(line):
            self.n_ctx = int(match[1])
        else:
            return False
        return True

    def loaded(self) -> None:
        """It works: what failed on the way (llama.cpp tries again with less) explains no later end."""
        self.failure = self.ran_out_at = None

    def out_of_memory(self, devices: Sequence[MemoryPlan]) -> str:
        """Where memory ran out: the name of one of the planned `devices`, `Host` or `unknown`."""
        names = [device.name for device in devices]
        found = self.ran_out_at
        if found is None:
            return UNKNOWN_PLACE
        if on_host(found):
            return HOST
        named = [name for name in names if found == name or found.startswith(f"{name}_")]
        numbered = [name for name in names if found.isdecimal() and name.rstrip("0123456789") + found == name]
        return next(iter(named or numbered), UNKNOWN_PLACE)

    def place_of(self, said: Explained, devices: Sequence[MemoryPlan]) -> str | None:
        """Where memory ran out, if that is what `said` means: the exact place, where the log tells it."""
        return self.out_of_memory(devices) if said.memory == UNKNOWN_PLACE else said.memory

    @property
    def gpu_layers(self) -> int | None:
        """Layers that really are on a device; None while the log has not told.

        Known are: none, when every model buffer is in RAM (a CPU build prints no `offloaded` line) or the
        line says 0; and the line's number, when a device holds a model buffer.
        """
        filled = [name for name, size in list(self._model.items()) if size > 0]
        if filled and all(on_host(name) for name in filled):
            return 0
        offloaded = self.layers[0] if self.layers is not None else None
        return offloaded if filled or offloaded == 0 else None

    @property
    def buffers(self) -> Mapping[str, Mapping[str, float]]:
        """MiB by buffer name and purpose (`model kv rs compute output`)."""
        found: dict[str, dict[str, float]] = {}
        for name, size in list(self._model.items()):
            found.setdefault(name, {})["model"] = size
        for (name, purpose), size in list(self._context.items()):
            found.setdefault(name, {})[purpose] = size
        return MappingProxyType({name: MappingProxyType(sizes) for name, sizes in found.items()})

    def _buffer(self, name: str, purpose: str, size: float) -> None:
        if purpose == "model":
            self._model[name] = self._model.get(name, 0.0) + size  # one line per file of a split set
        elif purpose == "compute":
            self._context[name, purpose] = size  # reserved again: the last one holds
        else:
            key = name, purpose
            self._context[key] = self._context.get(key, 0.0) + size  # one per cache: sliding window, full
