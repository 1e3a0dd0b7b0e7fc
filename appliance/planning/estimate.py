"""Bytes on each device and in RAM for one candidate: weights, caches, compute, driver."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from appliance.gguf import Header, ModelShape, shape_of
from appliance.planning.cache import Load, f16_copy_bytes, kv_layer_bytes, pad, quantised, state_layer_bytes
from appliance.planning.compute import (
    cpu_compute,
    era_of,
    gpu_compute,
    host_compute,
    mask_cells,
    output_bytes,
    partial_compute,
)
from appliance.planning.values import DeviceMemory, HostMemory, Learned, PlanRequest
from appliance.planning.weights import Weights, weights_of
from appliance.units import MIB

N_UBATCH = 512
ENGINE_PROCESS = 128 * MIB
"""RAM of the engine's process beside its buffers (libraries, tokenizer, HTTP); a typical figure."""
_DRIVER = {"cuda": 350 * MIB, "rocm": 450 * MIB, "vulkan": 250 * MIB, "metal": 100 * MIB}
_DRIVER_DEFAULT = 250 * MIB
_PIPELINE_COPIES = 4
_COPYING = frozenset({"cuda", "rocm"})  # backends that turn a quantised cache into f16 for attention


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to start the engine."""

    gpu_layers: int
    ctx: int
    parallel: int
    kv_type: str


@dataclass(frozen=True, slots=True)
class Bytes:
    """What one place has to hold."""

    model: int = 0
    kv: int = 0
    compute: int = 0
    overhead: int = 0

    @property
    def total(self) -> int:
        return self.model + self.kv + self.compute + self.overhead


@dataclass(frozen=True, slots=True)
class Estimate:
    """A candidate in bytes; `devices` in the order of `Machine.devices`."""

    devices: tuple[Bytes, ...]
    host: Bytes


def is_shared(device: DeviceMemory) -> bool:
    """Whether the device's memory is the machine's RAM."""
    return device.software or device.integrated is True or device.backend == "metal"


def driver_overhead(device: DeviceMemory) -> int:
    """What the driver takes for a process, outside every buffer the engine reports; typical figures."""
    return 0 if device.software else _DRIVER.get(device.backend, _DRIVER_DEFAULT)


class Estimator:
    """Estimates candidates for one model, engine build and set of devices."""

    def __init__(
        self,
        header: Header,
        devices: Sequence[DeviceMemory],
        host: HostMemory,
        request: PlanRequest,
        *,
        engine_build: str | None,
        learned: Mapping[str, Learned],
    ) -> None:
        self.shape: ModelShape = shape_of(header)
        self.weights: Weights = weights_of(header, self.shape)
        self.devices = tuple(devices)
        self.host = host
        self.request = request
        self.in_process_server = (engine_build or "").startswith("llama-cpp-python")
        """It keeps the logits of whole batches and full-size windows, and serves one request at a time."""
        self._era = era_of(engine_build or "")
        self._learned = learned
        self._caches: dict[tuple[int, int, str], tuple[int, ...]] = {}
        self._blocks = tuple(sum(sizes) for sizes in self.weights.blocks)
        self._blocks_on = tuple(
            tuple(self.weights.block_on(il, d.max_tensor) for il in range(self.shape.n_layer))
            for d in self.devices
        )

    @property
    def all_layers(self) -> int:
        """`-ngl` for everything, output head included."""
        return self.shape.n_layer + 1

    def n_ubatch(self, ctx: int) -> int:
        """Tokens worked on at once. An encoder must take its whole input in one piece."""
        return max(N_UBATCH, pad(ctx)) if self.shape.encoder else N_UBATCH

    def load(self, candidate: Candidate) -> Load:
        """The candidate as the engine sees it."""
        ubatch = self.n_ubatch(candidate.ctx)
        whole = self.request.embedding or self.shape.encoder or self.in_process_server
        return Load(
            ctx=candidate.ctx,
            slots=candidate.parallel,
            n_ubatch=min(ubatch, candidate.ctx * candidate.parallel),
            kv_k=candidate.kv_type,
            kv_v=candidate.kv_type,
            n_outputs=ubatch if whole else candidate.parallel,
            swa_full=self.in_process_server,
        )

    def estimate(self, candidate: Candidate) -> Estimate:
        """Bytes everywhere."""
        load = self.load(candidate)
        place = self._places(candidate.gpu_layers)
        caches = self._cache(candidate, load)
        on_host = [il for il in range(self.shape.n_layer) if place[il] is None]
        devices = tuple(
            self._device(index, place, caches, load, on_host) for index in range(len(self.devices))
        )
        if candidate.gpu_layers == 0:
            devices = tuple(Bytes() for _ in self.devices)
        return Estimate(devices, self._host(place, caches, load, on_host, devices))

    def _places(self, gpu_layers: int) -> tuple[int | None, ...]:
        """Device index of each block and, last, of the output head; None = RAM (`get_layer_buft_list`)."""
        n = self.shape.n_layer
        acting = min(gpu_layers, n + 1) if self.devices else 0
        start = n + 1 - acting
        free = [max(d.free if d.free is not None else d.total or 1, 0) for d in self.devices]
        total = sum(free) or 1
        ends = [end / total for end in accumulate(free)]
        last = len(self.devices) - 1
        return tuple(
            None if il < start else min(bisect_right(ends, (il - start) / acting), last)
            for il in range(n + 1)
        )

    def _cache(self, candidate: Candidate, load: Load) -> tuple[int, ...]:
        key = candidate.ctx, candidate.parallel, candidate.kv_type
        if key not in self._caches:
            self._caches[key] = tuple(
                kv_layer_bytes(self.shape, load, il) + state_layer_bytes(self.shape, load, il)
                for il in range(self.shape.n_layer)
            )
        return self._caches[key]

    def _device(
        self,
        index: int,
        place: tuple[int | None, ...],
        caches: tuple[int, ...],
        load: Load,
        on_host: list[int],
    ) -> Bytes:
        device = self.devices[index]
        mine = [il for il in range(self.shape.n_layer) if place[il] == index]
        model = sum(self._blocks_on[index][il] for il in mine)
        model += self.weights.everywhere if mine else 0
        if place[-1] == index:
            model += self.weights.output_on(device.max_tensor)
        compute = self._gpu_compute(index, caches, load, on_host)
        return Bytes(model, sum(caches[il] for il in mine), max(compute, 0), driver_overhead(device))

    def _gpu_compute(self, index: int, caches: tuple[int, ...], load: Load, on_host: list[int]) -> int:
        kv_copy = self._kv_copy(index, load)
        if not on_host or index > 0:  # the first device works for the blocks that lie in RAM
            pipelined = not on_host and len(self.devices) > 1
            copies = _PIPELINE_COPIES if pipelined else 1
            return gpu_compute(self.shape, load, self._era, mask_copies=copies, kv_copy=kv_copy)
        return partial_compute(
            self.shape,
            load,
            layer_weights=max(self._blocks[il] for il in on_host),
            layer_kv=max(caches[il] for il in on_host),
            kv_copy=kv_copy,
        )

    def _kv_copy(self, index: int, load: Load) -> int:
        if self.devices[index].backend not in _COPYING or not quantised(load.kv_k):
            return 0
        return max((f16_copy_bytes(self.shape, load, il) for il in range(self.shape.n_layer)), default=0)

    def _host(
        self,
        place: tuple[int | None, ...],
        caches: tuple[int, ...],
        load: Load,
        on_host: list[int],
        devices: tuple[Bytes, ...],
    ) -> Bytes:
        weights = self.weights
        model = weights.input + sum(self._blocks[il] for il in on_host)
        model += weights.everywhere if on_host else 0
        for il, index in enumerate(place[:-1]):
            if index is not None:
                model += self._blocks[il] - self._blocks_on[index][il]
        last = place[-1]
        model += sum(weights.output) if last is None else weights.output_off(self.devices[last].max_tensor)
        if last is None:
            compute = cpu_compute(self.shape, load, self._era)
        else:
            compute = host_compute(self.shape, load, self._era)
            if len(self.devices) > 1 and not on_host:
                compute += (_PIPELINE_COPIES - 1) * 2 * load.n_ubatch * mask_cells(self.shape, load)
        compute += output_bytes(self.shape, load.slots)
        shared = sum(b.total for d, b in zip(self.devices, devices, strict=True) if is_shared(d))
        return Bytes(model, sum(caches[il] for il in on_host), max(compute, 0), ENGINE_PROCESS + shared)
