"""The compute buffers of a candidate, everywhere: the one door to closed forms and recorded graphs.

With everything on GPUs the closed forms hold. With a part in RAM the engine copies weights and caches to the
first device, and the holes that they leave decide: there the graph is recorded and its allocation repeated.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from appliance.gguf import ModelShape
from appliance.planning.blocks import Block
from appliance.planning.cache import Load, f16_copy_bytes, quantised
from appliance.planning.forms import (
    Era,
    cpu_compute,
    gpu_compute,
    host_compute,
    mask_bytes,
    mask_cells,
    output_bytes,
)
from appliance.planning.placement import Placement
from appliance.planning.values import DeviceMemory
from appliance.planning.weights import Weights
from appliance.planning.worst_batch import WorstBatch

_FIRST_NEW_BUILD = 9_496
_FIRST_MIDDLE_BUILD = 7_342
_PIPELINE_COPIES = 4
_COPYING = frozenset({"cuda", "rocm"})  # backends that turn a quantised cache into f16 for attention
_REORDERING = frozenset({"vulkan", "metal"})  # they move operations so that less is live at once
_SEEN = frozenset({"vulkan"})  # where recorded graphs were compared with real loads that have a part in RAM
_KEPT = 512


@dataclass(frozen=True, slots=True)
class Compute:
    """Compute buffers in bytes."""

    devices: tuple[int, ...]
    """In the order of the planned devices."""
    host: int
    """In RAM: the part beside the devices, or all of it when none works."""
    output: int
    """The buffer of logits, also in RAM; the engine's table does not count it."""


class ComputeModel:
    """Compute buffers of one model for any settings and placement."""

    def __init__(self, shape: ModelShape, weights: Weights, era: Era = "new") -> None:
        self.shape, self.weights, self.era = shape, weights, era
        self._worst = WorstBatch(shape, weights)
        self._found: dict[tuple[object, ...], int] = {}

    def of(self, load: Load, placement: Placement, devices: Sequence[DeviceMemory]) -> Compute:
        """Without devices, or without layers on any, all is in `host`.

        A few microseconds; the first time for a new `load` with a part in RAM some hundred.
        """
        output = output_bytes(self.shape, load.slots)
        if not devices or not placement.gpu_layers:
            return Compute((0,) * len(devices), self._cpu(load), output)
        found = tuple(self.device(index, load, placement, d) for index, d in enumerate(devices))
        return Compute(found, self._host(load, placement), output)

    def device(self, index: int, load: Load, placement: Placement, device: DeviceMemory) -> int:
        """One device's buffer.

        Unlike `of`, also for a device that the engine sees and that has no layers: long batches are worked on
        there all the same.
        """
        helping = index == 0 and (placement.on_host or placement.cpu_moe)  # the first one that can
        mine = placement.of(index)
        if not (helping or mine or placement.output == index):
            return 0
        blocks = self._worst.blocks(placement if helping else None, mine)
        key = (load, blocks, device.backend, placement.pipelined, bool(helping))
        if key not in self._found:
            if len(self._found) >= _KEPT:
                self._found.clear()
            self._found[key] = self._device(load, placement, device, blocks, bool(helping))
        return self._found[key]

    def _device(
        self,
        load: Load,
        placement: Placement,
        device: DeviceMemory,
        blocks: tuple[Block, ...],
        helping: bool,
    ) -> int:
        copying = device.backend in _COPYING and quantised(load.kv_k)
        copies = _PIPELINE_COPIES if placement.pipelined else 1
        full = self._full(load, copies, copying)
        mask = mask_bytes(self.shape, self.era) * copies
        masks = mask * load.n_ubatch * mask_cells(self.shape, load)
        bound = max(full, self._worst.bound(load, masks, placement)) if helping else full
        if not load.flash_attn:
            return bound
        known = self._worst.exact and self.era == "new"
        if not helping and not known:
            return full
        reordered = device.backend in _REORDERING
        recorded = self._worst.peak(load, blocks, mask, f16_copies=copying, reordered=reordered)
        if known and (not helping or device.backend in _SEEN):
            return recorded
        return max(recorded, bound)

    def _cpu(self, load: Load) -> int:
        whole = load.n_outputs >= load.n_ubatch
        if self.era != "new" or whole or not load.flash_attn or not self._worst.exact:
            return cpu_compute(self.shape, load, self.era)
        key = (load,)
        if key not in self._found:
            blocks = self._worst.blocks(None, range(self.shape.n_layer - self.shape.n_layer_nextn))
            self._found[key] = self._worst.peak(load, blocks, mask_bytes(self.shape, self.era), cpu=True)
        return self._found[key]

    def _full(self, load: Load, copies: int, copying: bool) -> int:
        copy = 0
        if copying:
            copy = max(f16_copy_bytes(self.shape, load, il) for il in range(self.shape.n_layer))
        full = gpu_compute(self.shape, load, self.era, mask_copies=copies, kv_copy=copy)
        return full + (copies - 1) * load.unit * self.shape.n_embd  # a pipeline also keeps its inputs

    def _host(self, load: Load, placement: Placement) -> int:
        copies = _PIPELINE_COPIES if placement.pipelined else 1
        found = host_compute(self.shape, load, self.era, mask_copies=copies)
        if not placement.on_host:
            return found
        # keys and values of the blocks in RAM come back from the device
        kept = max(sum(self.shape.kv_row(il)) for il in placement.on_host)
        if any(self.shape.recurrent_layers[il] for il in placement.on_host):
            kept = max(kept, 2 * self.shape.n_embd)
        return found + load.unit * max(0, kept - self.shape.n_embd)


def era_of(engine_build: str) -> Era:
    """The era of a build from its text; new when it names no number, since older builds are not run."""
    match = re.search(r"\bb(\d{4,5})\b", engine_build)
    if match is None or int(match[1]) >= _FIRST_NEW_BUILD:
        return "new"
    return "middle" if int(match[1]) >= _FIRST_MIDDLE_BUILD else "old"


__all__ = [
    "Compute",
    "ComputeModel",
    "Era",
    "cpu_compute",
    "era_of",
    "gpu_compute",
    "host_compute",
    "mask_cells",
    "output_bytes",
]
