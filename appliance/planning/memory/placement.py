"""Where each block of a model lies, as the engine's loader decides it.

Source: `llama_model_base::load_tensors` and `get_layer_buft_list` of llama.cpp (October 2026).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from appliance.planning.values import Split


@dataclass(frozen=True, slots=True)
class Placement:
    """Device indices, in the order of the planned devices; None = RAM."""

    blocks: tuple[int | None, ...]
    """One entry per block, MTP blocks included."""
    output: int | None
    """The output head: the last layer, and the first one that goes to a GPU."""
    cpu_moe: int = 0
    """So many of the first blocks keep their routed experts in RAM, wherever the rest of them is."""
    n_devices: int = 0
    """Devices that take part."""
    split: Split = "layer"

    @property
    def gpu_layers(self) -> int:
        """As `-ngl` counts."""
        return len(self.blocks) - self.blocks.count(None) + (self.output is not None)

    @property
    def on_host(self) -> range:
        """Blocks in RAM: the first ones."""
        return range(self.blocks.count(None))

    @property
    def pipelined(self) -> bool:
        """Several devices work at once, each with its own copies of the graph's inputs (`llama_context`)."""
        whole = self.output is not None and not self.on_host and not self.cpu_moe
        return whole and self.n_devices > 1 and self.split == "layer"

    def of(self, device: int) -> range:
        """Blocks on one device, which are neighbours."""
        count = self.blocks.count(device)
        first = self.blocks.index(device) if count else 0
        return range(first, first + count)


def place(
    n_layer: int, gpu_layers: int, shares: Sequence[int], cpu_moe: int = 0, split: Split = "layer"
) -> Placement:
    """The loader's rule: the last `gpu_layers` of the blocks and the output head go to devices.

    `shares` are the devices' proportions, `--tensor-split` (layer counts or free bytes); a device with 0
    takes no part, and no shares mean that all is in RAM.
    """
    acting = min(gpu_layers, n_layer + 1) if any(shares) else 0
    start = n_layer + 1 - acting
    total = sum(shares) or 1
    ends = [end / total for end in accumulate(shares)]
    last = max((index for index, share in enumerate(shares) if share), default=0)
    host: tuple[int | None, ...] = (None,) * start
    on_devices = tuple(min(bisect_right(ends, il / acting), last) for il in range(acting))
    places = host + on_devices
    used = sum(share > 0 for share in shares) if acting else 0
    return Placement(places[:-1], places[-1], cpu_moe, used, split)
