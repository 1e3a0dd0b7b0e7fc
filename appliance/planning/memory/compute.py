"""The compute buffers of a candidate, everywhere: the one door to closed forms and recorded graphs.

With everything on GPUs the closed forms hold. With a part in RAM the engine copies weights and caches to the
first device, and the holes that they leave decide: there the graph is recorded and its allocation repeated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from appliance.gguf import ModelShape
from appliance.planning.memory.blocks import Block
from appliance.planning.memory.cache import Load, f16_copy_bytes, quantised
from appliance.planning.memory.forms import (
    Era,
    cpu_compute,
    gpu_compute,
    host_compute,
    logits_bytes,
    mask_bytes,
    mask_cells,
    output_bytes,
)
from appliance.planning.memory.placement import Placement
from appliance.planning.memory.weights import Weights
from appliance.planning.memory.worst_batch import WorstBatch
from appliance.planning.values import DeviceMemory

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


@dataclass(frozen=True, slots=True)
class _Part:
    """What one device does in a placement."""

    blocks: tuple[Block, ...]
    number: int
    """Of these blocks: a short key for them."""
    helping: bool
    """It works for what lies in RAM: the first device that can."""
    output: bool


@dataclass(frozen=True, slots=True)
class _Parts:
    """A placement, taken apart once."""

    devices: tuple[_Part | None, ...]
    """None: nothing to do."""
    on_gpu: bool
    copies: int
    """Of the graph's inputs."""
    returned: int
    """Floats per token that come back to RAM at once: keys and values of a block there."""


class ComputeModel:
    """Compute buffers of one model for any settings and placement. Remembers what it found."""

    def __init__(self, shape: ModelShape, weights: Weights, era: Era = "new") -> None:
        self.shape, self.weights, self.era = shape, weights, era
        self._worst = WorstBatch(shape, weights)
        self._known = self._worst.exact and era == "new"
        self._parts: dict[tuple[Placement, int], _Parts] = {}
        self._numbers: dict[tuple[Block, ...], int] = {}
        self._found: dict[tuple[object, ...], int] = {}

    def of(self, load: Load, placement: Placement, devices: Sequence[DeviceMemory]) -> Compute:
        """Without devices, or without layers on any, all is in `host`.

        A few microseconds; the first time for a new `load` some hundred.
        """
        output = output_bytes(self.shape, load.slots)
        parts = self._taken_apart(placement, len(devices))
        if not devices or not parts.on_gpu:
            return Compute((0,) * len(devices), self._kept(("cpu", load), lambda: self._cpu(load)), output)
        found = tuple(self.device(index, load, placement, d) for index, d in enumerate(devices))
        refused = placement.output is None or self._refused(devices[placement.output])
        key = ("host", load, parts.copies, parts.returned, refused)
        return Compute(found, self._kept(key, lambda: self._host(load, parts, refused)), output)

    def device(self, index: int, load: Load, placement: Placement, device: DeviceMemory) -> int:
        """One device's buffer.

        Unlike `of`, also for a device that the engine sees and that has no layers: long batches are worked on
        there all the same.
        """
        parts = self._taken_apart(placement, max(index + 1, placement.n_devices))
        part = parts.devices[index]
        if part is None:
            return 0
        output = part.output and not self._refused(device)
        key = (load, part.number, part.helping, output, device.backend, parts.copies)
        return self._kept(
            key, lambda: self._device(load, placement, part, device.backend, parts.copies, output)
        )

    def _device(
        self, load: Load, placement: Placement, part: _Part, backend: str, copies: int, output: bool
    ) -> int:
        copying = backend in _COPYING and quantised(load.kv_k)
        mask = mask_bytes(self.shape, self.era) * copies
        kept = (copies - 1) * load.unit * self.shape.n_embd  # a pipeline also keeps what comes in
        sure = self._known and (not part.helping or backend in _SEEN) and load.flash_attn
        recorded = 0
        if load.flash_attn and (self._known or part.helping):
            recorded = kept + self._worst.peak(
                load,
                part.blocks,
                mask,
                f16_copies=copying,
                reordered=backend in _REORDERING,
            )
        if output and load.n_outputs >= load.n_ubatch:
            recorded = max(recorded, logits_bytes(self.shape, load))
        if sure:
            return recorded
        full = kept + gpu_compute(
            self.shape, load, self.era, mask_copies=copies, kv_copy=self._f16_copy(load) if copying else 0
        )
        masks = mask * load.n_ubatch * mask_cells(self.shape, load)
        bound = self._worst.bound(load, masks, placement) if part.helping else 0
        return max(full, recorded, bound)

    def _f16_copy(self, load: Load) -> int:
        return max(f16_copy_bytes(self.shape, load, il) for il in range(self.shape.n_layer))

    def _cpu(self, load: Load) -> int:
        whole = load.n_outputs >= load.n_ubatch
        if whole or not load.flash_attn or not self._known:
            return cpu_compute(self.shape, load, self.era)
        blocks = self._worst.blocks(None, range(self.shape.n_layer - self.shape.n_layer_nextn))
        return self._worst.peak(load, blocks, mask_bytes(self.shape, self.era), cpu=True)

    def _host(self, load: Load, parts: _Parts, refused: bool) -> int:
        found = host_compute(self.shape, load, self.era, mask_copies=parts.copies)
        found += load.unit * max(0, parts.returned - self.shape.n_embd)
        if refused and not self.shape.encoder:  # the logits are made in RAM
            found += 4 * self.shape.n_vocab * min(load.n_outputs, load.n_ubatch)
        return found

    def _refused(self, device: DeviceMemory) -> bool:
        """Whether the device doesn't take the output matrix."""
        return self.weights.head_refused(device.max_tensor)

    def _taken_apart(self, placement: Placement, n_devices: int) -> _Parts:
        key = placement, n_devices
        if key not in self._parts:
            if len(self._parts) >= _KEPT:
                self._parts.clear()
            self._parts[key] = self._take_apart(placement, n_devices)
        return self._parts[key]

    def _take_apart(self, placement: Placement, n_devices: int) -> _Parts:
        on_host, shape = placement.on_host, self.shape
        returned = max((sum(shape.kv_row(il)) for il in on_host), default=0)
        if any(shape.recurrent_layers[il] for il in on_host):
            returned = max(returned, 2 * shape.n_embd)
        return _Parts(
            tuple(self._part(index, placement, bool(on_host)) for index in range(n_devices)),
            bool(placement.gpu_layers),
            _PIPELINE_COPIES if placement.pipelined else 1,
            returned,
        )

    def _part(self, index: int, placement: Placement, on_host: bool) -> _Part | None:
        helping, mine = index == 0 and (on_host or placement.cpu_moe > 0), placement.of(index)
        output = placement.output == index
        if not (helping or mine or output):
            return None
        blocks = self._worst.blocks(placement if helping else None, mine)
        return _Part(blocks, self._numbers.setdefault(blocks, len(self._numbers)), helping, output)

    def _kept(self, key: tuple[object, ...], compute: Callable[[], int]) -> int:
        if key not in self._found:
            if len(self._found) >= _KEPT:
                self._found.clear()
            self._found[key] = compute()
        return self._found[key]


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
