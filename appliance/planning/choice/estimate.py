"""Bytes on each device and in RAM for one candidate: weights, caches, compute, driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy

from appliance.gguf import Header, ModelShape, shape_of
from appliance.planning.choice.candidate import Bytes, Candidate, Estimate
from appliance.planning.choice.sums import Sums
from appliance.planning.memory.cache import Load
from appliance.planning.memory.compute import ComputeModel, era_of
from appliance.planning.memory.extras import DraftModel, with_draft
from appliance.planning.memory.lora import adapter_bytes, scratch_bytes
from appliance.planning.memory.placement import Placement, place
from appliance.planning.memory.weights import Weights, weights_of
from appliance.planning.speed.reads import Read, ReadModel
from appliance.planning.speed.rule import tokens_per_second
from appliance.planning.values import HOST, DeviceMemory, HostMemory, Learned, Lora, PlanRequest, Projector
from appliance.units import MIB

ENGINE_PROCESS = 128 * MIB
"""RAM of the engine's process beside its buffers (libraries, tokenizer, HTTP); a typical figure."""
_DRIVER = {"cuda": 350 * MIB, "rocm": 450 * MIB, "vulkan": 250 * MIB, "metal": 100 * MIB}
_DRIVER_DEFAULT = 250 * MIB
_NOTHING = Learned()


def is_shared(device: DeviceMemory) -> bool:
    """Whether the device's memory is the machine's RAM."""
    return device.software or device.integrated is True or device.backend == "metal"


def driver_overhead(device: DeviceMemory, learned: Learned = _NOTHING) -> int:
    """What the driver takes for a process, outside every buffer the engine reports: as seen, else typical."""
    if learned.overhead is not None:
        return learned.overhead
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
        mmproj: Projector | None = None,
        draft: Header | None = None,
        adapters: Sequence[Lora] = (),
        learned: Mapping[str, Learned],
    ) -> None:
        self.header = header
        self.shape: ModelShape = shape_of(header)
        self.weights: Weights = weights_of(header, self.shape)
        self.devices = tuple(devices)
        self.host = host
        self.request = request
        self.mmproj = mmproj
        self.adapters = tuple(adapters)
        self.era = era_of(engine_build or "")
        self.described = engine_build is None
        """The machine is a described one: no engine was asked."""
        self.draft = None if draft is None else DraftModel(draft, self.era)
        self.in_process_server = (engine_build or "").startswith("llama-cpp-python")
        """It keeps the logits of whole batches and full-size windows, and serves one request at a time."""
        self._compute = ComputeModel(self.shape, self.weights, self.era)
        self._reads = ReadModel(self.shape, self.weights)
        self._learned = learned
        self.sums = Sums(self.shape, self.weights)

    def asked(self, request: PlanRequest) -> Estimator:
        """The same estimator for another request."""
        other = copy(self)
        other.request = request
        return other

    @property
    def all_layers(self) -> int:
        """`-ngl` for everything, output head included."""
        return self.shape.n_layer + 1

    @property
    def in_one_piece(self) -> bool:
        """Whether a text must not be longer than a micro-batch."""
        return self.shape.encoder or self.request.in_one_piece

    @property
    def for_vectors(self) -> bool:
        """Whether texts become vectors or scores, perhaps beside chat."""
        return self.shape.encoder or self.request.embedding

    @property
    def moe_blocks(self) -> tuple[int, ...]:
        """Blocks that have routed experts."""
        return tuple(il for il, sizes in enumerate(self.weights.experts) if sizes)

    def learned(self, name: str) -> Learned:
        """What earlier loads taught about a device."""
        return self._learned.get(name, _NOTHING)

    def load(self, candidate: Candidate) -> Load:
        """The candidate as the engine sees it."""
        ubatch = candidate.n_ubatch
        whole = self.for_vectors or self.in_process_server
        load = Load(
            ctx=candidate.ctx,
            slots=candidate.parallel,
            n_ubatch=min(ubatch, candidate.ctx * candidate.parallel),
            kv_k=candidate.kv_type,
            kv_v=candidate.kv_type,
            n_outputs=ubatch if whole else candidate.parallel,
            swa_full=self.in_process_server,
        )
        return load if self.draft is None or candidate.draft is None else with_draft(load)

    def used(self, candidate: Candidate) -> tuple[int, ...]:
        """Indices of the devices that take part."""
        if not candidate.gpu_layers:
            return ()
        return tuple(index for index, share in enumerate(candidate.shares) if share)

    def placement(self, candidate: Candidate) -> Placement:
        """Where its blocks lie; the places count the devices that take part."""
        shares = [share for share in candidate.shares if share]
        return place(self.shape.n_layer, candidate.gpu_layers, shares, candidate.cpu_moe, self.request.split)

    def estimate(self, candidate: Candidate) -> Estimate:
        """Bytes everywhere."""
        load, placement, used = self.load(candidate), self.placement(candidate), self.used(candidate)
        working = [self.devices[index] for index in used]
        shares = tuple(candidate.shares[index] for index in used)
        compute = self._compute.of(load, placement, working)
        devices = [Bytes() for _ in self.devices]
        for place_, index in enumerate(used):
            devices[index] = self._device(place_, index, placement, shares, load, compute.devices[place_])
        host = self._host(placement, working, load, compute.host) + Bytes(compute=compute.output)
        there, in_ram = self.beside(candidate)
        host += in_ram
        for index, more in zip(used, there, strict=True):
            devices[index] += more
        shared = sum(
            max(taken.total - device.apart, 0)
            for device, taken in zip(self.devices, devices, strict=True)
            if is_shared(device)
        )
        refused = self._refused(placement, used, load)
        return Estimate(tuple(devices), host + Bytes(overhead=ENGINE_PROCESS + shared), refused)

    def _refused(self, placement: Placement, used: tuple[int, ...], load: Load) -> tuple[int, int] | None:
        """Attention works on a block's whole cache at once: a device that can't take it ends the engine."""
        for place_, index in enumerate(used):
            limit = self.devices[index].max_tensor
            if limit is None:
                continue
            largest = self.sums.largest_cache(load, placement.of(place_))
            if largest > limit:
                return index, largest
        return None

    def at_least(self, candidate: Candidate) -> int:
        """Bytes that the devices together hold in any split: weights and caches, without buffers."""
        first = self.all_layers - candidate.gpu_layers
        blocks = range(first, self.shape.n_layer)
        limits = {device.max_tensor for device in self.devices}
        model = min(self.sums.weights_of(limit, blocks, candidate.cpu_moe) for limit in limits)
        head = min(self.weights.output_on(limit) for limit in limits) if candidate.gpu_layers else 0
        return model + head + self.sums.caches_of(self.load(candidate), blocks)

    def at_least_in_ram(self, candidate: Candidate) -> int:
        """Bytes in RAM in any split: weights and caches that no device gets."""
        if not self.devices or not candidate.gpu_layers:
            blocks, head = range(self.shape.n_layer), sum(self.weights.output)
        else:
            blocks, head = range(max(self.all_layers - candidate.gpu_layers, 0)), 0
        moe = range(len(blocks), min(candidate.cpu_moe, self.shape.n_layer)) if head == 0 else range(0)
        experts = self.sums.weights_of(None, moe, 0) - self.sums.weights_of(None, moe, self.shape.n_layer)
        in_ram = self.weights.input + head + self.sums.weights_of(None, blocks, 0) + experts
        return in_ram + self.sums.caches_of(self.load(candidate), blocks)

    def reads(self, candidate: Candidate, filled: int) -> tuple[Read, ...]:
        """What one token of one request reads, with so many tokens in its context."""
        working = [self.devices[index] for index in self.used(candidate)]
        placement = self.placement(candidate)
        return self._reads.of(self.load(candidate), placement, working, self.host, filled)

    def speed(self, candidate: Candidate, filled: int) -> float | None:
        """Tokens per second of one request; None where a bandwidth is unknown, and for encoders."""
        return None if self.shape.encoder else tokens_per_second(self.reads(candidate, filled))

    def beside(self, candidate: Candidate) -> tuple[tuple[Bytes, ...], Bytes]:
        """What projector, draft model and adapters take: on each device that takes part, and in RAM.

        The first two are on the first device as a whole, or in RAM.
        """
        used, load = self.used(candidate), self.load(candidate)
        seen, drafting = self._projector(candidate, used), self._drafting(candidate, used)
        adapted, far = adapter_bytes(self.adapters, self.placement(candidate))
        scratch = scratch_bytes(self.adapters, load.n_ubatch)
        devices = [Bytes(model=n, compute=scratch if n else 0) for n in adapted]
        if used:
            devices[0] += seen[0] + drafting[0]
        return tuple(devices), seen[1] + drafting[1] + Bytes(model=far, compute=scratch if far else 0)

    def _projector(self, candidate: Candidate, used: tuple[int, ...]) -> tuple[Bytes, Bytes]:
        seen = self.mmproj
        if seen is None or candidate.mmproj is None:
            return Bytes(), Bytes()
        if candidate.mmproj == "gpu" and used:
            return Bytes(model=seen.weights, compute=seen.compute), Bytes(compute=seen.host)
        return Bytes(), Bytes(model=seen.weights, compute=seen.compute + seen.host)

    def _drafting(self, candidate: Candidate, used: tuple[int, ...]) -> tuple[Bytes, Bytes]:
        load = self.load(candidate)
        if self.draft is None or candidate.draft is None:
            return Bytes(), Bytes()
        if candidate.draft == "gpu" and used:
            taken = self.draft.on_device(load, self.devices[used[0]])
            there = Bytes(taken.model, taken.kv, taken.compute)
            return there, Bytes(model=taken.host_model, compute=taken.host_compute)
        taken = self.draft.in_ram(load)
        return Bytes(), Bytes(taken.host_model, taken.kv, taken.host_compute)

    def _device(
        self,
        place_: int,
        index: int,
        placement: Placement,
        shares: tuple[int, ...],
        load: Load,
        compute: int,
    ) -> Bytes:
        device, learned = self.devices[index], self.learned(self.devices[index].name)
        mine, limit = placement.of(place_), device.max_tensor
        model = self.sums.weights_of(limit, mine, placement.cpu_moe)
        model += self.weights.everywhere if mine else 0
        model += self.weights.output_on(limit) if placement.output == place_ else 0
        kv = self.sums.caches_of(load, mine)
        if placement.split != "layer" and len(shares) > 1:
            model, kv = self._divided(placement, shares, place_, kv, load)
        whole = not placement.on_host and not placement.cpu_moe
        factor = learned.full if whole else learned.partial
        corrected = compute if factor is None else round(compute * factor)
        return Bytes(model, kv, corrected, driver_overhead(device, learned), compute)

    def _divided(
        self, placement: Placement, shares: tuple[int, ...], place_: int, kv: int, load: Load
    ) -> tuple[int, int]:
        """Weights and cache of one of several devices that divide every matrix (`row`, `tensor`).

        Blocks' caches stay whole with `row`; with `tensor` they are divided, too. Rounded up by a sixteenth,
        since a matrix is cut at whole blocks of rows.
        """
        on_gpu = [il for il, place_of in enumerate(placement.blocks) if place_of is not None]
        every, without = self.sums.blocks_on(None), self.sums.blocks_on(None, experts=False)
        model = sum((without if il < placement.cpu_moe else every)[il] for il in on_gpu)
        model += self.weights.output_on(None) if placement.output is not None else 0
        part = shares[place_] / sum(shares) * 17 / 16
        if placement.split == "tensor":
            kv = round(sum(self.sums.caches(load)[il] for il in on_gpu) * part)
        return round(model * part) + self.weights.everywhere, kv

    def _host(self, placement: Placement, working: Sequence[DeviceMemory], load: Load, compute: int) -> Bytes:
        weights, on_host = self.weights, placement.on_host
        model = weights.input + self.sums.weights_of(None, range(self.shape.n_layer), 0)
        model += weights.everywhere if on_host else 0
        for place_, device in enumerate(working):
            model -= self.sums.weights_of(device.max_tensor, placement.of(place_), placement.cpu_moe)
        if placement.output is None:
            model += sum(weights.output)
        else:
            model += weights.output_off(working[placement.output].max_tensor)
        factor = self.learned(HOST).partial if working else self.learned(HOST).full
        corrected = compute if factor is None else round(compute * factor)
        return Bytes(model, self.sums.caches_of(load, on_host), corrected, formula=compute)
